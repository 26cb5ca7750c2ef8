//! Fetching from inside a jail, for Rust compiled to WebAssembly (WASI preview 1).
//!
//! ```no_run
//! let mut answer = jail_fetch::get("https://example.com/")?;
//! println!("{} {}", answer.status(), answer.text()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate stands on the host functions of docs/fetch-abi.md, which a module may import where the policy grants a fetch. There is no TLS here: the
//! fetch proxy outside speaks it, so `https://` URLs are asked for as they are. A refusal of the proxy is an answer too: its status is 403, it has the header
//! `X-Jail-Fetch`, and its body says in JSON what to do.

use std::fmt;
use std::io::{self, Read, Write};

#[link(wasm_import_module = "jail_fetch_v1")]
extern "C" {
    #[link_name = "open"]
    fn abi_open(
        method: *const u8, method_len: usize, url: *const u8, url_len: usize, headers: *const u8, headers_len: usize,
        length: i64, ms: u32, handle: *mut u32,
    ) -> u32;
    #[link_name = "write"]
    fn abi_write(handle: u32, data: *const u8, len: usize) -> u32;
    #[link_name = "status"]
    fn abi_status(handle: u32, status: *mut u32) -> u32;
    #[link_name = "head"]
    fn abi_head(handle: u32, to: *mut u8, len: usize, total: *mut u32) -> u32;
    #[link_name = "read"]
    fn abi_read(handle: u32, to: *mut u8, len: usize, got: *mut u32) -> u32;
    #[link_name = "close"]
    fn abi_close(handle: u32) -> u32;
    #[link_name = "error"]
    fn abi_error(to: *mut u8, len: usize, total: *mut u32) -> u32;
}

/// Why a call did not work: its number, the same as in WASI preview 1, and its words.
#[derive(Debug, Clone)]
pub struct Error {
    pub number: u32,
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(e: Error) -> Self {
        let kind = match e.number {
            14 => io::ErrorKind::ConnectionRefused,
            15 => io::ErrorKind::UnexpectedEof,
            64 => io::ErrorKind::BrokenPipe,
            73 => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, e)
    }
}

fn check(number: u32) -> Result<(), Error> {
    if number == 0 {
        return Ok(());
    }
    let mut text = vec![0; 512];
    let mut total = 0;
    unsafe { abi_error(text.as_mut_ptr(), text.len(), &mut total) };
    text.truncate(total as usize);
    Err(Error { number, text: String::from_utf8_lossy(&text).into_owned() })
}

/// A request that is being made.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    url: String,
    headers: String,
    ms: u32,
}

impl Request {
    pub fn new(method: &str, url: &str) -> Self {
        Request { method: method.into(), url: url.into(), headers: String::new(), ms: 0 }
    }

    /// Adds a header. What says where the message ends or whose it is (Host, Content-Length and their like) is refused when the request starts.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\n");
        self
    }

    /// Bounds the whole request, in milliseconds.
    pub fn timeout_ms(mut self, ms: u32) -> Self {
        self.ms = ms;
        self
    }

    /// Sends the request with a body that is there as a whole, and waits for the answer.
    pub fn send(self, body: &[u8]) -> Result<Answer, Error> {
        let mut sending = self.start(Some(body.len() as u64))?;
        match sending.put(body) {
            Err(e) if e.number != 64 => return Err(e), // 64: the host has answered already
            _ => sending.answer(),
        }
    }

    /// Starts the request. The body is written to what is returned; its length is None where it is not known yet.
    pub fn start(self, length: Option<u64>) -> Result<Sending, Error> {
        let mut handle = 0;
        let length = length.map_or(-1, |n| n as i64);
        check(unsafe {
            abi_open(
                self.method.as_ptr(), self.method.len(), self.url.as_ptr(), self.url.len(), self.headers.as_ptr(), self.headers.len(),
                length, self.ms, &mut handle,
            )
        })?;
        Ok(Sending { handle: Handle(handle) })
    }
}

/// Fetches a URL by GET.
pub fn get(url: &str) -> Result<Answer, Error> {
    Request::new("GET", url).send(&[])
}

/// Ends its request when it is dropped.
#[derive(Debug)]
struct Handle(u32);

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { abi_close(self.0) };
    }
}

/// A request whose body is being written.
#[derive(Debug)]
pub struct Sending {
    handle: Handle,
}

impl Sending {
    fn put(&mut self, data: &[u8]) -> Result<(), Error> {
        check(unsafe { abi_write(self.handle.0, data.as_ptr(), data.len()) })
    }

    /// Ends the body and waits for the answer.
    pub fn answer(self) -> Result<Answer, Error> {
        let mut status = 0;
        check(unsafe { abi_status(self.handle.0, &mut status) })?;
        let mut total = 0;
        check(unsafe { abi_head(self.handle.0, std::ptr::null_mut(), 0, &mut total) })?;
        let mut head = vec![0; total as usize];
        check(unsafe { abi_head(self.handle.0, head.as_mut_ptr(), head.len(), &mut total) })?;
        Ok(Answer { handle: self.handle, status: status as u16, head: String::from_utf8_lossy(&head).into_owned() })
    }
}

impl Write for Sending {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.put(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer, whose body is read from it.
#[derive(Debug)]
pub struct Answer {
    handle: Handle,
    status: u16,
    head: String,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Names and values of the headers, as they came.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.head.lines().skip(1).filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
    }

    /// The value of the first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The rest of the body as text.
    pub fn text(&mut self) -> io::Result<String> {
        let mut text = String::new();
        self.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Read for Answer {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        check(unsafe { abi_read(self.handle.0, to.as_mut_ptr(), to.len(), &mut got) })?;
        Ok(got as usize)
    }
}
