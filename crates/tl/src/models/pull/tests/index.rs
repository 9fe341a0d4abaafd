//! A package index of one wheel on a port of this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::sha256;

/// How it behaves until it is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The first so many answers end half-way through what they announced.
    CutsFirst(usize),
    /// The first answer ends half-way, those after it at once.
    CutsThenSilent,
    /// The first answer ends half-way; ranges are not known here.
    CutsOnceIgnoresRange,
    OneByteWrong,
    /// It has no such package.
    Empty,
    No,
}

struct State {
    wheel: Vec<u8>,
    broken: Mutex<Broken>,
    /// Where each download was asked to begin.
    ranges: Mutex<Vec<Option<usize>>>,
}

pub(super) struct Server {
    state: Arc<State>,
    port: u16,
}

impl Server {
    /// Serves until the process ends.
    pub(super) fn start(wheel: Vec<u8>, broken: Broken) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (broken, ranges) = (Mutex::new(broken), Mutex::default());
        let state = Arc::new(State { wheel, broken, ranges });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                // A client that goes away is part of the test.
                let _ = answer(&shared, socket.unwrap());
            }
        });
        Server { state, port }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/simple", self.port)
    }

    pub(super) fn ranges(&self) -> Vec<Option<usize>> {
        self.state.ranges.lock().unwrap().clone()
    }

    pub(super) fn repair(&self) {
        *self.state.broken.lock().unwrap() = Broken::No;
    }
}

fn answer(state: &State, mut socket: TcpStream) -> std::io::Result<()> {
    let mut path = String::new();
    let mut from = None;
    for line in BufReader::new(socket.try_clone()?).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().ok();
        }
    }
    let broken = *state.broken.lock().unwrap();
    let head = |status: &str, more: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n")
    };
    if path == "/simple/p/" && broken != Broken::Empty {
        let page = format!(
            "<a href=\"../../files/other-1-py3-none-any.whl\">o</a>\n\
             <a href=\"../../files/p-1-py3-none-any.whl#sha256={}\">p</a>",
            sha256(&state.wheel)
        );
        return write!(
            socket,
            "{}{page}",
            head("200 OK", "Content-Type: text/html\r\n", page.len())
        );
    }
    if path != "/files/p-1-py3-none-any.whl" {
        return socket.write_all(head("404 Not Found", "", 0).as_bytes());
    }
    let turn = {
        let mut ranges = state.ranges.lock().unwrap();
        ranges.push(from);
        ranges.len()
    };
    let knows_ranges = broken != Broken::CutsOnceIgnoresRange;
    let begin = from.filter(|_| knows_ranges).unwrap_or(0);
    let mut rest = state.wheel[begin..].to_vec();
    let total = state.wheel.len();
    let range = format!("Content-Range: bytes {begin}-{}/{total}\r\n", total - 1);
    let (status, more) =
        if begin > 0 { ("206 Partial Content", range.as_str()) } else { ("200 OK", "") };
    socket.write_all(head(status, more, rest.len()).as_bytes())?;
    let send = match broken {
        Broken::CutsFirst(n) if turn <= n => rest.len() / 2,
        Broken::CutsThenSilent if turn == 1 => rest.len() / 2,
        Broken::CutsThenSilent => 0,
        Broken::CutsOnceIgnoresRange if turn == 1 => rest.len() / 2,
        _ => rest.len(),
    };
    if broken == Broken::OneByteWrong {
        rest[1000] ^= 1;
    }
    socket.write_all(&rest[..send])
}
