//! Finds problems in this node's network, from what the kernel and the launcher know, for messages about ranks that
//! wait forever.
//!
//! Reads files in /proc. A file that cannot be read counts as empty, because a run does not depend on these messages.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::launcher::{self, variable};

/// Retransmissions in a row after which a peer counts as silent. The kernel doubles the waiting time after each of them, so three take more
/// than a second. After a lost packet, one is usually enough.
const RETRANSMISSIONS: u32 = 3;

/// Time to connect to an address. Networks in one building answer within a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

/// This process's TCP connections to other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// This node's addresses in these connections.
    pub own: BTreeSet<IpAddr>,
    /// Addresses that have not acknowledged data, or a request to connect, although it was sent several times.
    pub silent: BTreeSet<IpAddr>,
}

/// Returns the addresses at both ends of this process's TCP connections to other nodes.
pub fn connections() -> Connections {
    let links = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let target = |link: fs::DirEntry| fs::read_link(link.path()).ok()?.to_str().map(String::from);
    let sockets: BTreeSet<String> = links.filter_map(target).collect();
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).fold(Connections::default(), |mut all, line| {
        if let Some(row) = Row::parse(line).filter(|row| sockets.contains(&format!("socket:[{}]", row.inode))) {
            all.own.insert(row.own);
            all.silent.extend((row.retransmissions >= RETRANSMISSIONS).then_some(row.peer));
        }
        all
    })
}

/// A connection to another node: a line of /proc/net/tcp or /proc/net/tcp6.
struct Row<'a> {
    own: IpAddr,
    peer: IpAddr,
    retransmissions: u32,
    inode: &'a str,
}

impl<'a> Row<'a> {
    /// Parses a line. Returns `None` for the header, listening sockets and connections within this node.
    fn parse(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, own, peer, _, _, _, retransmissions, _, _, inode, ..] = fields[..] else { return None };
        let (own, peer) = (address(own)?, address(peer)?);
        let elsewhere = own != peer && !peer.is_loopback() && !peer.is_unspecified();
        let retransmissions = u32::from_str_radix(retransmissions, 16).ok()?;
        elsewhere.then_some(Self { own, peer, retransmissions, inode })
    }
}

/// Parses an address of /proc/net/tcp, such as `0100630A:0016`. Each group of eight digits is a number in the machine's order of bytes.
fn address(text: &str) -> Option<IpAddr> {
    let digits = text.split(':').next()?;
    let groups = digits.as_bytes().chunks(8).map(|group| u32::from_str_radix(str::from_utf8(group).ok()?, 16).ok());
    let bytes: Vec<u8> = groups.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
    }
}

/// A network that an interface of this node is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Network {
    interface: String,
    base: u32,
    mask: u32,
}

impl Network {
    /// Parses a line of /proc/net/route. Returns `None` for routes through a gateway.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, base, gateway, _, _, _, _, mask, ..] = fields[..] else { return None };
        let number = |text| u32::from_str_radix(text, 16).ok().map(|number| u32::from_be_bytes(number.to_ne_bytes()));
        let (base, mask) = (number(base)?, number(mask)?);
        (number(gateway)? == 0 && mask != 0).then(|| Self { interface: interface.into(), base, mask })
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask == self.base
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.mask.count_ones())
    }
}

/// Returns advice if this node can reach the node of Open MPI's `mpirun` on some of their common networks but not on all. Open MPI uses all
/// of them, and waits forever for a connection on one that leads nowhere. Needs up to two seconds. Returns `None` if the user has chosen
/// the networks, and on all ranks of a node except the first.
pub fn unreachable() -> Option<String> {
    let chosen = ["OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"];
    if launcher::is_second_of_node() || chosen.iter().any(|name| variable(name).is_some()) {
        return None;
    }
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let networks: Vec<Network> = routes.lines().filter_map(Network::parse).collect();
    advice(&networks, &addresses(&variable("OMPI_MCA_orte_hnp_uri")?), |address| {
        TcpStream::connect_timeout(&address, PATIENCE).is_ok()
    })
}

/// Parses the addresses in the URI of Open MPI's `mpirun`, such as `7.0;tcp://10.0.0.1,172.17.0.1:4242`.
fn addresses(uri: &str) -> Vec<SocketAddr> {
    let transports = uri.split(';').filter_map(|part| part.strip_prefix("tcp://")?.rsplit_once(':'));
    let socket = |host: &str, port: &str| Some(SocketAddr::new(host.parse().ok()?, port.parse().ok()?));
    transports.flat_map(|(hosts, port)| hosts.split(',').filter_map(move |host| socket(host, port))).collect()
}

/// Tries all addresses at once, each in a thread of its own.
fn advice(networks: &[Network], addresses: &[SocketAddr], reach: impl Fn(SocketAddr) -> bool + Sync) -> Option<String> {
    let common = addresses.iter().filter_map(|address| {
        let IpAddr::V4(ip) = address.ip() else { return None };
        Some((networks.iter().find(|network| network.contains(ip))?, *address))
    });
    let tried: Vec<(&Network, SocketAddr, bool)> = thread::scope(|scope| {
        let attempt = |(network, address)| {
            let reach = &reach;
            // An address that could not be tried is left out, because nothing is known about it.
            let thread = thread::Builder::new().spawn_scoped(scope, move || reach(address)).ok()?;
            Some((network, address, thread))
        };
        let started: Vec<_> = common.filter_map(attempt).collect();
        started
            .into_iter()
            .filter_map(|(network, address, thread)| Some((network, address, thread.join().ok()?)))
            .collect()
    });
    let (works, ..) = tried.iter().find(|(.., reached)| *reached)?;
    let (broken, address, _) = tried.iter().find(|(.., reached)| !reached)?;
    Some(format!(
        "this node cannot reach {} on {} ({broken}), but it reaches the same node on {} ({works}). Open MPI uses every network and waits \
         forever on one that leads nowhere. Start with `mpirun --mca btl_tcp_if_include {works}`, or set \
         OMPI_MCA_btl_tcp_if_include={works}",
        address.ip(),
        broken.interface,
        works.interface,
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn retransmissions_are_parsed_from_proc_net_tcp() {
        let row = |line| {
            Row::parse(line).map(|row| (row.own.to_string(), row.peer.to_string(), row.retransmissions, row.inode))
        };
        let waiting =
            "   7: 0100630A:0400 0200630A:863D 01 00000026:00000000 01:0000046B 0000000A 0 0 3795654 2 0 20 4 30 10 -1";
        assert_eq!(row(waiting), Some(("10.99.0.1".into(), "10.99.0.2".into(), 10, "3795654")));
        let mapped = "   0: 0000000000000000FFFF00000100630A:0400 0000000000000000FFFF00000200630A:863D 01 0:0 01:0 00000000 0 0 9 2";
        assert_eq!(row(mapped), Some(("10.99.0.1".into(), "10.99.0.2".into(), 0, "9")));
        let six = "   0: 000080FE000000000000000001000000:0400 000080FE000000000000000002000000:863D 01 0:0 01:0 00000000 0 0 9 2";
        assert_eq!(row(six), Some(("fe80::1".into(), "fe80::2".into(), 0, "9")));
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let listening =
            "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3790877 1";
        let here =
            "   4: 0100007F:9B80 0100007F:E8EB 01 00000000:00000000 00:00000000 00000000     0        0 3795558 1";
        assert_eq!([header, listening, here, ""].map(row), [None, None, None, None]);
        // connections within this node do not count
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(b"words").unwrap();
        assert!(!connections().own.iter().any(IpAddr::is_loopback));
    }

    #[test]
    fn advice_names_the_interface_that_cannot_connect() {
        let routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                      eth0 00000000 FE00630A 0003 0 0 0 00000000 0 0 0\n\
                      eth0 0000630A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
                      docker0 000011AC 00000000 0001 0 0 0 0000FFFF 0 0 0\n";
        let networks: Vec<Network> = routes.lines().filter_map(Network::parse).collect();
        assert_eq!(networks.iter().map(Network::to_string).collect::<Vec<_>>(), ["10.99.0.0/24", "172.17.0.0/16"]);
        let all = addresses("7.0;tcp://10.99.0.1,172.17.0.1,192.168.5.1:4242;tcp6://[fe80::1]:4242");
        assert_eq!(all.len(), 3);
        let text = advice(&networks, &all, |address| address.ip().to_string() == "10.99.0.1").unwrap();
        let places = ["172.17.0.1 on docker0 (172.17.0.0/16)", "eth0 (10.99.0.0/24)", "if_include=10.99.0.0/24"];
        assert!(places.iter().all(|place| text.contains(place)), "{text}");
        // this node is not part of the third network, so Open MPI does not use it
        assert_eq!(advice(&networks, &all, |address| address.ip().to_string() != "192.168.5.1"), None);
        // a node can have 20 addresses, and connecting to an unreachable address lasts until the time limit. So each attempt here
        // ends only after all attempts have begun
        let many = vec![all[0]; 20];
        let (start, begun, together) = (Instant::now(), AtomicUsize::new(0), AtomicBool::new(true));
        let slow = |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            while begun.load(Ordering::SeqCst) < many.len() && start.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(1));
            }
            together.fetch_and(begun.load(Ordering::SeqCst) == many.len(), Ordering::SeqCst);
            false
        };
        assert_eq!(advice(&networks, &many, slow), None);
        assert!(together.into_inner(), "the addresses must be tried at the same time");
        // if no address answers, a firewall may block all of them, so there is no advice about a network
        assert_eq!(advice(&networks, &all, |_| false), None);
    }
}
