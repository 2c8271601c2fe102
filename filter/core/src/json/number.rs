/// A number as it was written: digits, decimal point and exponent, exactly.
///
/// No floating point is involved, so a count such as `9007199254740993` survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    /// All digits read as one integer; `None` once they no longer fit.
    digits: Option<u64>,
    /// Power of ten that `digits` must be multiplied by.
    scale: i32,
}

impl Number {
    /// The value, if it is a whole number from 0 to `u64::MAX` (`5`, `5.0` and `0.5e1` all are 5).
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let mut value = self.digits?;
        if value == 0 {
            return Some(0);
        }
        if self.negative {
            return None;
        }
        let mut scale = self.scale;
        while scale < 0 {
            if value % 10 != 0 {
                return None;
            }
            value /= 10;
            scale = scale.saturating_add(1);
        }
        while scale > 0 {
            value = value.checked_mul(10)?;
            scale = scale.saturating_sub(1);
        }
        Some(value)
    }

    /// The least whole number that is no less, if it is not below 0; `u64::MAX` if it is too large or too long to be
    /// told. Who reads it as a floating point number may take it for that whole number.
    #[must_use]
    pub fn ceil(&self) -> Option<u64> {
        if self.negative {
            return self.as_u64();
        }
        let Some(mut value) = self.digits else { return Some(u64::MAX) };
        let mut scale = self.scale;
        while scale < 0 && value > 1 {
            value = value.div_ceil(10);
            scale = scale.saturating_add(1);
        }
        while scale > 0 && value > 0 && value < u64::MAX {
            value = value.saturating_mul(10);
            scale = scale.saturating_sub(1);
        }
        Some(value)
    }
}

/// Where in the grammar of a number we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    ExponentSign,
    Exponent,
}

/// Integers below this can take a digit more without a check.
const FEW: u64 = 1 << 60;

/// Reads a number byte by byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberScan {
    part: Part,
    negative: bool,
    digits: Option<u64>,
    fraction_digits: i32,
    exponent: i32,
    exponent_negative: bool,
}

/// What a byte meant to a number.
pub(super) enum Step {
    /// It belongs to the number.
    Taken,
    /// The number ended before it.
    Ended,
    /// It cannot follow.
    Bad,
}

impl NumberScan {
    /// Starts on the first byte of a number; `None` if no number starts with it.
    pub(super) fn start(byte: u8) -> Option<Self> {
        let part = match byte {
            b'-' => Part::Minus,
            b'0' => Part::Zero,
            b'1'..=b'9' => Part::Integer,
            _ => return None,
        };
        let digits = if part == Part::Integer { u64::from(byte.wrapping_sub(b'0')) } else { 0 };
        Some(Self {
            part,
            negative: part == Part::Minus,
            digits: Some(digits),
            fraction_digits: 0,
            exponent: 0,
            exponent_negative: false,
        })
    }

    /// Takes bytes up to the first that does not belong: how many, and what stopped it (`Taken`: nothing).
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8]) -> (usize, Step) {
        for (taken, &byte) in bytes.iter().enumerate() {
            // Token ids come by the ten thousand: digits of a small integer go straight in.
            if let (Part::Integer, b'0'..=b'9', Some(digits @ 0..FEW)) =
                (self.part, byte, self.digits)
            {
                let digit = u64::from(byte.wrapping_sub(b'0'));
                self.digits = Some(digits.wrapping_mul(10).wrapping_add(digit));
                continue;
            }
            match self.step(byte) {
                Step::Taken => {}
                stop => return (taken, stop),
            }
        }
        (bytes.len(), Step::Taken)
    }

    #[inline]
    fn step(&mut self, byte: u8) -> Step {
        self.part = match (self.part, byte) {
            (Part::Integer, b'0'..=b'9') => {
                self.digit(byte);
                return Step::Taken;
            }
            (Part::Minus, b'0') => Part::Zero,
            (Part::Minus, b'1'..=b'9') => {
                self.digit(byte);
                Part::Integer
            }
            (Part::Zero | Part::Integer, b'.') => Part::Point,
            (Part::Point | Part::Fraction, b'0'..=b'9') => {
                self.digit(byte);
                self.fraction_digits = self.fraction_digits.saturating_add(1);
                Part::Fraction
            }
            (Part::Zero | Part::Integer | Part::Fraction, b'e' | b'E') => Part::E,
            (Part::E, b'+' | b'-') => {
                self.exponent_negative = byte == b'-';
                Part::ExponentSign
            }
            (Part::E | Part::ExponentSign | Part::Exponent, b'0'..=b'9') => {
                let digit = i32::from(byte.wrapping_sub(b'0'));
                self.exponent = self.exponent.saturating_mul(10).saturating_add(digit);
                Part::Exponent
            }
            // "01" is no number and no separator either.
            (Part::Zero, b'0'..=b'9') => return Step::Bad,
            _ if self.is_whole() => return Step::Ended,
            _ => return Step::Bad,
        };
        Step::Taken
    }

    /// Whether the number could stop here.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.part, Part::Zero | Part::Integer | Part::Fraction | Part::Exponent)
    }

    /// The number read so far.
    pub(super) fn number(&self) -> Number {
        let exponent =
            if self.exponent_negative { self.exponent.saturating_neg() } else { self.exponent };
        Number {
            negative: self.negative,
            digits: self.digits,
            scale: exponent.saturating_sub(self.fraction_digits),
        }
    }

    #[inline]
    fn digit(&mut self, byte: u8) {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        self.digits =
            self.digits.and_then(|d| d.checked_mul(10)).and_then(|d| d.checked_add(digit));
    }
}
