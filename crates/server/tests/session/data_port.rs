//! Data connections of a test client, in MODE S and MODE E.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::time::Duration;

use proto::eblock::{BlockFlags, BlockHeader, HEADER_LEN};
use socket2::{Domain, Socket, Type};

const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Connects from another address of this host.
pub(crate) fn connect_from(local: IpAddr, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(local, 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

pub(crate) fn listen(ip: IpAddr) -> TcpListener {
    TcpListener::bind((ip, 0)).unwrap()
}

pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Reads all bytes to the end of the connection.
pub(crate) fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Reads what comes, to the end or to an error.
pub(crate) fn read_some(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Sends the bytes and closes the connection.
pub(crate) fn send_and_close(mut stream: TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

pub(crate) fn send_header(stream: &mut TcpStream, header: BlockHeader) {
    stream.write_all(&header.encode()).unwrap();
}

pub(crate) fn send_block(stream: &mut TcpStream, offset: u64, bytes: &[u8]) {
    send_header(stream, BlockHeader::data(offset, bytes.len() as u64));
    stream.write_all(bytes).unwrap();
}

pub(crate) fn read_header(stream: &mut TcpStream) -> BlockHeader {
    let mut bytes = [0; HEADER_LEN];
    stream.read_exact(&mut bytes).unwrap();
    BlockHeader::decode(&bytes)
}

/// Reads the blocks of one connection to its EOD into `file`, which grows as needed. Returns the EOD
/// count if this connection carried the EOF.
pub(crate) fn read_blocks(stream: &mut TcpStream, file: &mut Vec<u8>) -> Option<u64> {
    read_blocks_at(stream, file, &mut Vec::new())
}

/// Like [`read_blocks`], and adds the received ranges to `received`.
pub(crate) fn read_blocks_at(
    stream: &mut TcpStream,
    file: &mut Vec<u8>,
    received: &mut Vec<Range<usize>>,
) -> Option<u64> {
    let mut announced = None;
    loop {
        let header = read_header(stream);
        if header.flags.contains(BlockFlags::EOF) {
            announced = Some(header.offset);
        } else if header.count > 0 {
            let end = usize::try_from(header.offset + header.count).unwrap();
            let start = usize::try_from(header.offset).unwrap();
            file.resize(file.len().max(end), 0);
            stream.read_exact(&mut file[start..end]).unwrap();
            received.push(start..end);
        }
        if header.flags.contains(BlockFlags::EOD) {
            return announced;
        }
    }
}
