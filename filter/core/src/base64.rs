//! Base64 (RFC 4648).

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// In the standard alphabet, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for place in 0..4usize {
            let shift = 18usize.saturating_sub(place.saturating_mul(6));
            let digit = DIGITS.get(((bits >> shift) & 63) as usize).copied().unwrap_or(b'=');
            text.push(char::from(if place <= three.len() { digit } else { b'=' }));
        }
    }
    text
}

/// Of the standard alphabet or that for URLs, with or without padding; `None` if it is none.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let unpadded =
        text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last.saturating_add(1));
    let (text, padding) = text.split_at_checked(unpadded)?;
    // A single character says less than a byte.
    if padding.len() > 2 || text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for byte in group {
            let six = match byte {
                b'A'..=b'Z' => byte.wrapping_sub(b'A'),
                b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
                b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = (bits << 6) | u32::from(six);
        }
        let missing = 4usize.saturating_sub(group.len());
        bits = bits.checked_shl(u32::try_from(missing).ok()?.saturating_mul(6))?;
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend(whole.iter().take(3usize.saturating_sub(missing)));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn what_is_written_is_read_in_every_form() {
            for (text, bytes) in [
                ("", &b""[..]),
                ("Zg==", b"f"),
                ("Zm8=", b"fo"),
                ("Zm9v", b"foo"),
                ("Zm9vYg==", b"foob"),
                ("Zm9vYmE=", b"fooba"),
                ("Zm9vYmFy", b"foobar"),
                ("+/8=", &[0xfb, 0xff]),
                ("c2VydmluZy9yZXBsaWNhLcOp", "serving/replica-é".as_bytes()),
            ] {
                assert_eq!(encode(bytes), text);
                assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
                let for_urls = text.replace('+', "-").replace('/', "_").replace('=', "");
                assert_eq!(decode(for_urls.as_bytes()).as_deref(), Some(bytes), "{for_urls}");
            }
        }

        fn what_is_none_is_refused() {
            for text in ["Z", "Zm9vY", "Zm 9", "Zg===", "Z=g", "YQ=a", "Y===", "====", "é"] {
                assert_eq!(decode(text.as_bytes()), None, "{text}");
            }
        }
    }
}
