//! A service that answers with the address of its client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each request with the address that it comes from, or with something else; how often it
/// was asked.
pub(crate) struct AddressService {
    pub(crate) url: String,
    instead: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
}

impl AddressService {
    pub(crate) async fn start(instead: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let instead = Arc::new(Mutex::new(instead.map(str::to_owned)));
        let (count, answer) = (Arc::clone(&asked), Arc::clone(&instead));
        tokio::spawn(async move {
            while let Ok((mut stream, from)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let text = answer.lock().unwrap().clone().unwrap_or_else(|| from.ip().to_string());
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len() + 1);
                let _ = stream.write_all(format!("{head}{text}\n").as_bytes()).await;
            }
        });
        Self { url, instead, asked }
    }

    /// Answers with this from now on; with the client's address, if it is none.
    pub(crate) fn answer(&self, instead: Option<&str>) {
        *self.instead.lock().unwrap() = instead.map(str::to_owned);
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}
