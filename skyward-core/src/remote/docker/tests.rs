//! Operations on a container with a fake engine.

use std::path::PathBuf;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::*;

/// Answers requests on a socket of its own.
pub(crate) struct Pretended {
    folder: PathBuf,
    serving: JoinHandle<()>,
}

impl Pretended {
    /// Each command prints this and ends.
    fn whose_commands_say(said: &'static [u8]) -> Self {
        Self::new(said, "")
    }

    /// An engine with this id, without containers.
    pub(crate) fn with_id(id: &'static str) -> Self {
        Self::new(b"", id)
    }

    fn new(said: &'static [u8], id: &'static str) -> Self {
        let folder = std::env::temp_dir().join(format!("skyp{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let serving = Self::serve(&folder, said, id);
        Self { folder, serving }
    }

    fn serve(folder: &std::path::Path, said: &'static [u8], id: &'static str) -> JoinHandle<()> {
        let listener = UnixListener::bind(folder.join("s")).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, said, id));
            }
        })
    }

    /// Replaces it with another engine at the same path.
    pub(crate) fn replaced_by(mut self, id: &'static str) -> Self {
        self.serving.abort();
        std::fs::remove_file(self.folder.join("s")).unwrap();
        self.serving = Self::serve(&self.folder, b"", id);
        self
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}/s", self.folder.display())
    }

    fn container(&self) -> Container {
        Container::of(Engine::new(Some(&self.url())), "box")
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The head of a request, its content, and the stream for the answer.
pub(crate) async fn read_request(stream: UnixStream) -> Option<(BufReader<UnixStream>, String, Vec<u8>)> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap() == 0 {
            return None;
        }
        if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    Some((stream, head, body))
}

/// An answer with this JSON.
pub(crate) fn answer_of(status: &str, json: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", json.len());
    format!("{head}Connection: close\r\n\r\n{json}").into_bytes()
}

async fn answer(stream: UnixStream, said: &[u8], id: &str) {
    let Some((mut stream, head, _)) = read_request(stream).await else { return };
    let answer = match head.split(' ').nth(1).unwrap() {
        path if path.ends_with("/version") => answer_of("200 OK", r#"{"ApiVersion":"1.41","MinAPIVersion":"1.41"}"#),
        path if path.ends_with("/info") => answer_of("200 OK", &format!(r#"{{"ID":"{id}"}}"#)),
        path if path.contains("/containers/json") || path.contains("/networks") => answer_of("200 OK", "[]"),
        path if path.ends_with("/containers/box/exec") => answer_of("201 Created", r#"{"Id":"one"}"#),
        path if path.ends_with("/exec/one/start") => {
            let head = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".to_vec();
            [head, said.to_vec()].concat()
        }
        other => panic!("nobody asks for {other}"),
    };
    stream.write_all(&answer).await.unwrap();
}

#[tokio::test]
async fn the_error_of_an_unreachable_socket_always_has_a_reason() {
    let told = async |said| {
        let error = Pretended::whose_commands_say(said).container().open("/s").await.err().unwrap();
        assert!(error.is_temporary());
        error.message().to_owned()
    };
    assert_eq!(
        told(b"").await,
        "cannot connect to /s in container box: the container or its engine ended before there was an answer"
    );
    let no_socket = b"\x02\0\0\0\0\0\0\x08no file\n";
    assert_eq!(told(no_socket).await, "cannot connect to /s in container box: no file");
}

#[tokio::test]
async fn an_error_about_the_engine_keeps_its_facts_and_its_hint() {
    let error = Container::of(Engine::new(Some("unix:///no/engine")), "box").open("/s").await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot connect to /s in container box: cannot reach the Docker engine at unix:///no/engine: there is no such \
         socket (tried: to connect)"
    );
    assert!(error.hint().unwrap().contains("docker info"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(!error.is_temporary());
}
