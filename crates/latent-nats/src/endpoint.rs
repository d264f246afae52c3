//! The one socket that may be dialled (X-001, X-002, D-07). No resolver, no IPv6, no second address.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::ConfigError;

/// What kind of address a peer has, as far as the rules tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerClass {
    /// Reachable by anyone.
    Public,
    /// 127.0.0.0/8.
    Loopback,
    /// 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 (RFC 1918).
    Private,
    /// 169.254.0.0/16 (RFC 3927).
    LinkLocal,
    /// 100.64.0.0/10 (RFC 6598).
    SharedAddressSpace,
    /// 192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24 (RFC 5737).
    Documentation,
    /// 198.18.0.0/15 (RFC 2544).
    Benchmarking,
    /// 0.0.0.0/8 but 0.0.0.0, 192.0.0.0/24, 192.88.99.0/24, 240.0.0.0/4 (RFC 6890).
    Reserved,
    /// 0.0.0.0.
    Unspecified,
    /// 224.0.0.0/4.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
}

impl fmt::Display for PeerClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::SharedAddressSpace => "in the address space that providers share (100.64.0.0/10)",
            Self::Documentation => "an address for documentation",
            Self::Benchmarking => "an address for benchmarks",
            Self::Reserved => "a reserved address",
            Self::Unspecified => "the unspecified address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
        })
    }
}

impl PeerClass {
    /// The class of an address.
    pub fn of(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        match (a, b, c) {
            _ if address.is_unspecified() => Self::Unspecified,
            _ if address.is_broadcast() => Self::Broadcast,
            _ if address.is_loopback() => Self::Loopback,
            _ if address.is_private() => Self::Private,
            _ if address.is_link_local() => Self::LinkLocal,
            _ if address.is_multicast() => Self::Multicast,
            _ if address.is_documentation() => Self::Documentation,
            (100, 64..=127, _) => Self::SharedAddressSpace,
            (198, 18..=19, _) => Self::Benchmarking,
            (0 | 240..=255, _, _) | (192, 0, 0) | (192, 88, 99) => Self::Reserved,
            _ => Self::Public,
        }
    }
}

/// Checks the socket and its opt-in.
pub(crate) fn check(address: &str, allow_non_public_peer: Option<&str>) -> Result<SocketAddrV4, ConfigError> {
    let cut = |text: &str| text.chars().take(80).collect::<String>();
    let socket: SocketAddrV4 = address.parse().map_err(|_| ConfigError::Address { text: cut(address) })?;
    if socket.port() == 0 {
        return Err(ConfigError::Address { text: cut(address) });
    }
    let class = PeerClass::of(*socket.ip());
    if matches!(class, PeerClass::Unspecified | PeerClass::Multicast | PeerClass::Broadcast) {
        return Err(ConfigError::NeverAPeer { address: socket.to_string(), class });
    }
    match allow_non_public_peer {
        Some(allowed) if allowed.parse() != Ok(socket) => {
            Err(ConfigError::OtherOptIn { address: socket.to_string(), allowed: cut(allowed) })
        }
        None if class != PeerClass::Public => Err(ConfigError::NotPublic { address: socket.to_string(), class }),
        _ => Ok(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_addresses_has_its_rule() {
        use PeerClass::*;
        let table = [
            ("8.8.8.8", Public),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("172.32.0.1", Public),
            ("192.168.1.1", Private),
            ("169.254.169.254", LinkLocal),
            ("100.64.0.1", SharedAddressSpace),
            ("100.127.255.255", SharedAddressSpace),
            ("100.128.0.1", Public),
            ("100.63.255.255", Public),
            ("192.0.2.1", Documentation),
            ("198.51.100.7", Documentation),
            ("203.0.113.9", Documentation),
            ("198.18.0.1", Benchmarking),
            ("198.19.255.255", Benchmarking),
            ("198.20.0.1", Public),
            ("0.1.2.3", Reserved),
            ("192.0.0.8", Reserved),
            ("240.0.0.1", Reserved),
            ("255.255.255.254", Reserved),
            ("0.0.0.0", Unspecified),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("255.255.255.255", Broadcast),
        ];
        for (address, class) in table {
            assert_eq!(PeerClass::of(address.parse().unwrap()), class, "{address}");
            let socket = format!("{address}:4222");
            let never = matches!(class, Unspecified | Multicast | Broadcast);
            assert_eq!(check(&socket, None).is_ok(), class == Public, "{address} alone");
            assert_eq!(check(&socket, Some(&socket)).is_ok(), !never, "{address} opted in");
            assert!(check(&socket, Some("10.9.9.9:4222")).is_err(), "{address} with another opt-in");
        }
    }

    #[test]
    fn only_an_ipv4_address_with_a_port_is_a_socket() {
        for bad in [
            "",
            "localhost:4222",
            "[::1]:4222",
            "8.8.8.8",
            "8.8.8.8:0",
            "8.8.8.8:65536",
            "nats://8.8.8.8:4222",
            "8.8.8.8:4222 ",
            "010.8.8.8:1",
        ] {
            assert!(matches!(check(bad, None), Err(ConfigError::Address { .. })), "{bad:?}");
        }
        assert!(matches!(check("10.0.0.1:4222", Some("10.0.0.1:4223")), Err(ConfigError::OtherOptIn { .. })), "the port counts");
    }
}
