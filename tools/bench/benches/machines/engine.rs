//! The engine without Skyward: a bare exec stream, with nothing in between; `docker run` and
//! `docker rm`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::common::bytes::SIZE;
use super::common::median;

/// A container that does nothing. Dropping the value removes it.
pub(crate) struct Alone(String);

/// `cat` in a container, at the other end of an exec stream.
pub(crate) struct Echo {
    stream: UnixStream,
    output: Frames<BufReader<UnixStream>>,
}

/// Removes the engine's frame heads from its output: a byte for the stream, three zero bytes, four
/// for the length.
struct Frames<R> {
    reader: R,
    left: usize,
}

impl Alone {
    pub(crate) fn start(image: &str) -> io::Result<Self> {
        all_at_once(&[run(image)]).map(|ids| Self(ids.concat()))
    }

    pub(crate) fn echo(&self) -> io::Result<Echo> {
        Echo::open(&self.0)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Err(error) = all_at_once(&[remove(&self.0)]) {
            eprintln!("the container {} is left, for ten minutes: {error}", self.0);
        }
    }
}

impl Echo {
    fn open(container: &str) -> io::Result<Self> {
        let config = json!({
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false, "Cmd": ["cat"],
        });
        let (mut head, mut reader) = request(&format!("/containers/{container}/exec"), &config)?;
        let mut created = String::new();
        reader.read_to_string(&mut created)?;
        let created: Value = serde_json::from_str(&created)?;
        let id =
            created["Id"].as_str().ok_or_else(|| io::Error::other(format!("no exec was made: {head} {created}")))?;
        (head, reader) = request(&format!("/exec/{id}/start"), &json!({ "Detach": false, "Tty": false }))?;
        if !head.contains(" 200 ") && !head.contains(" 101 ") {
            return Err(io::Error::other(format!("the exec was not started: {head}")));
        }
        Ok(Self { stream: reader.get_ref().try_clone()?, output: Frames { reader, left: 0 } })
    }

    /// Microseconds until a few bytes are back, the median.
    pub(crate) fn p50_us(mut self, count: usize) -> io::Result<f64> {
        let (message, mut back) = ([7; MESSAGE], [0; MESSAGE]);
        let mut micros = Vec::with_capacity(count);
        for round in 0..count + count / 10 {
            let begin = Instant::now();
            self.stream.write_all(&message)?;
            self.output.read_exact(&mut back)?;
            // The first rounds find cold caches on all sides.
            if round >= count / 10 {
                micros.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(median(micros))
    }

    /// Messages per second, when they are sent one after the other without waiting.
    pub(crate) fn per_s(mut self, count: usize) -> io::Result<f64> {
        let took = self.through(count * MESSAGE, MESSAGE)?;
        Ok(count as f64 / took)
    }

    /// Bytes per second, counted in both directions; the best of all rounds.
    pub(crate) fn there_and_back(mut self, times: usize) -> io::Result<f64> {
        let mut best = f64::MAX;
        for _ in 0..times {
            best = best.min(self.through(SIZE, 1 << 20)?);
        }
        Ok(2.0 * SIZE as f64 / best)
    }

    /// Seconds for this many bytes there and back, in pieces of this size.
    fn through(&mut self, bytes: usize, piece: usize) -> io::Result<f64> {
        let Self { stream, output } = self;
        let data = vec![7; piece];
        let mut back = vec![0; 1 << 16];
        let begin = Instant::now();
        thread::scope(|scope| {
            let writer = scope.spawn(|| (0..bytes / piece).try_for_each(|_| stream.write_all(&data)));
            let mut left = bytes;
            while left > 0 {
                let room = back.len().min(left);
                left -= match output.read(&mut back[..room])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    some => some,
                };
            }
            writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer was interrupted")))
        })?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let mut head = [0; 8];
            self.reader.read_exact(&mut head)?;
            self.left = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        }
        let room = buffer.len().min(self.left);
        let read = self.reader.read(&mut buffer[..room])?;
        self.left -= read;
        Ok(read)
    }
}

/// Seconds until `count` idle containers run, and until they are removed, all at once; the medians.
pub(crate) fn run_and_remove(image: &str, count: usize, times: usize) -> io::Result<(f64, f64)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let begin = Instant::now();
        let ids = all_at_once(&vec![run(image); count])?;
        starts.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        all_at_once(&ids.iter().map(|id| remove(id)).collect::<Vec<_>>())?;
        ends.push(begin.elapsed().as_secs_f64());
    }
    Ok((median(starts), median(ends)))
}

fn run(image: &str) -> Vec<String> {
    ["run", "--detach", "--rm", "--init", image, "sleep", "600"].map(str::to_owned).to_vec()
}

fn remove(container: &str) -> Vec<String> {
    ["rm", "--force", container].map(str::to_owned).to_vec()
}

fn all_at_once(commands: &[Vec<String>]) -> io::Result<Vec<String>> {
    let started = commands.iter().map(|arguments| {
        Command::new("docker")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
    });
    let children = started.collect::<io::Result<Vec<_>>>()?;
    let ended = children.into_iter().map(|child| {
        let output = child.wait_with_output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(io::Error::other(format!("docker ended with {}", output.status))),
        }
    });
    ended.collect()
}

/// Sends a request. Returns the first line of the answer, and a reader of its body.
fn request(path: &str, body: &Value) -> io::Result<(String, BufReader<UnixStream>)> {
    let named = std::env::var("DOCKER_HOST").unwrap_or_default();
    let mut stream = UnixStream::connect(named.strip_prefix("unix://").unwrap_or("/var/run/docker.sock"))?;
    let body = body.to_string();
    // In HTTP/1.0, an answer ends with the connection.
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            return Ok((first.trim().to_owned(), reader));
        }
    }
}

/// About the size of an empty call and its answer.
const MESSAGE: usize = 32;
