//! A service that tells a client the address that it comes from, as `checkip.amazonaws.com` does.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::guard;
use crate::http::Abort;
use crate::timing::{ACCEPT_PAUSE, ARGUMENTS};

/// The service. It ends with this.
#[derive(Debug)]
pub(crate) struct AddressService {
    pub(crate) address: SocketAddr,
    _listener: Abort<()>,
}

/// Starts it on an address.
pub(crate) async fn start(address: Ipv4Addr) -> Result<AddressService> {
    guard::loopback(address.into())?;
    let listener = TcpListener::bind((address, 0)).await.with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        loop {
            while open.try_join_next().is_some() {}
            match listener.accept().await {
                // It is no error when a client goes away.
                Ok((stream, from)) => drop(open.spawn(async move { tell(stream, from).await.unwrap_or_default() })),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    });
    Ok(AddressService { address, _listener: Abort(task) })
}

async fn tell(mut stream: TcpStream, from: SocketAddr) -> Result<()> {
    let mut request = [0; 4096];
    timeout(ARGUMENTS, stream.read(&mut request)).await??;
    let text = format!("{}\n", from.ip());
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}
