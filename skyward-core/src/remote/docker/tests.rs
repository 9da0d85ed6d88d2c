//! Operations on a container with an engine that is only pretended.

use std::path::PathBuf;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::*;
use crate::error::ErrorStatus;

/// Answers requests on a socket of its own.
struct Pretended {
    folder: PathBuf,
    serving: JoinHandle<()>,
}

impl Pretended {
    /// Each command that is started says this, and ends.
    fn whose_commands_say(said: &'static [u8]) -> Self {
        let folder = std::env::temp_dir().join(format!("skyp{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("s")).unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, said));
            }
        });
        Self { folder, serving }
    }

    fn container(&self) -> Container {
        Container::of(Engine::new(Some(&format!("unix://{}/s", self.folder.display()))), "box")
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn answer(stream: UnixStream, said: &[u8]) {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap() == 0 {
            return;
        }
        if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    let json = |status: &str, body: &str| {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
        format!("{head}Connection: close\r\n\r\n{body}").into_bytes()
    };
    let answer = match head.split(' ').nth(1).unwrap() {
        path if path.ends_with("/version") => json("200 OK", r#"{"ApiVersion":"1.41","MinAPIVersion":"1.41"}"#),
        path if path.ends_with("/containers/box/exec") => json("201 Created", r#"{"Id":"one"}"#),
        path if path.ends_with("/exec/one/start") => {
            let head = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".to_vec();
            [head, said.to_vec()].concat()
        }
        other => panic!("nobody asks for {other}"),
    };
    stream.write_all(&answer).await.unwrap();
}

#[tokio::test]
async fn why_a_socket_cannot_be_reached_is_never_left_open() {
    let told = async |said| {
        let error = Pretended::whose_commands_say(said).container().open("/s").await.err().unwrap();
        assert_eq!(error.status(), ErrorStatus::Temporary);
        error.message().to_owned()
    };
    assert_eq!(
        told(b"").await,
        "cannot connect to /s in container box: the container ended, or its engine did, before there was an answer"
    );
    let no_socket = b"\x02\0\0\0\0\0\0\x08no file\n";
    assert_eq!(told(no_socket).await, "cannot connect to /s in container box: no file");
}
