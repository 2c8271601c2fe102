//! Free ports on 127.0.0.1.

use std::net::TcpListener;

use super::ProcessError;

/// Ports of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Envoy, for clients.
    pub listen: u16,
    /// Envoy's admin interface.
    pub admin: u16,
    /// The agent.
    pub agent: u16,
}

impl Ports {
    /// Three ports that nobody listens on.
    ///
    /// # Errors
    /// When there are none.
    pub fn free() -> Result<Self, ProcessError> {
        let [listen, admin, agent] = free_ports()?;
        Ok(Self { listen, admin, agent })
    }

    /// The ports that people expect, each replaced by a free one where it is taken.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn customary() -> Result<Self, ProcessError> {
        let free = Self::free()?;
        let or = |wanted, other| if bind(wanted).is_some() { wanted } else { other };
        Ok(Self {
            listen: or(8080, free.listen),
            admin: or(9901, free.admin),
            agent: or(7080, free.agent),
        })
    }
}

/// `N` different ports that nobody listens on.
///
/// They are taken from below the range that the system hands out for outgoing connections: under
/// load one of those could otherwise take the port before the program does that is to listen on it.
///
/// # Errors
/// When there are none.
pub fn free_ports<const N: usize>() -> Result<[u16; N], ProcessError> {
    let mut held: Vec<(u16, TcpListener)> = Vec::with_capacity(N);
    for _ in 0..10_000 {
        if held.len() == N {
            break;
        }
        let port = fastrand::u16(12_000..32_000);
        held.extend(bind(port).map(|listener| (port, listener)));
    }
    let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
    ports.try_into().map_err(|_| ProcessError::NoPort)
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_listened_on() {
        let mut ports: [u16; 8] = free_ports().unwrap();
        let listeners: Vec<_> = ports.iter().filter_map(|port| bind(*port)).collect();
        assert_eq!(listeners.len(), 8);
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
