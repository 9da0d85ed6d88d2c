//! The client's own address as AWS sees it. By default, no other address may log in to the machines
//! of a pool.

use std::net::IpAddr;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ipnet::IpNet;
use skyward_core::error::{Error, ErrorKind, Result};
use tokio::time::timeout;

use crate::errors::chain;
use crate::timing::ADDRESS_ANSWER;

/// Asks a service that answers with the address that it is asked from.
///
/// # Errors
///
/// [`ErrorKind::Provider`], temporary, when it does not answer, or not with an address.
///
/// # Cancel safety
///
/// The call changes nothing.
pub(crate) async fn of_client(service: &str) -> Result<IpNet> {
    let failed = |why: String| {
        Error::new(ErrorKind::Provider, format!("{service} did not return this client's address: {why}"))
            .with_hint("set the networks that may log in to the machines, `.ssh_from([\"203.0.113.7/32\"])`; or name another service, `.address_service(\"https://…\")`")
            .temporary()
    };
    let uri = service.parse().map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, format!("`{service}` is no URL"))
            .with_hint("it looks like `https://checkip.amazonaws.com`")
    })?;
    let ask = async {
        // The crypto provider is named here: rustls chooses none in a program that contains two.
        let provider = rustls::crypto::ring::default_provider();
        let https = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
        let https = https.map_err(|error| error.to_string())?;
        let client = Client::builder(TokioExecutor::new())
            .build::<_, Empty<Bytes>>(https.https_or_http().enable_http1().build());
        let answer = client.get(uri).await.map_err(|error| chain(&error))?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        text.parse::<IpAddr>().map_err(|_| format!("`{text}` is no address"))
    };
    match timeout(ADDRESS_ANSWER, ask).await {
        Ok(Ok(address)) => Ok(IpNet::from(address)),
        Ok(Err(why)) => Err(failed(why)),
        Err(_) => Err(failed(format!("it did not answer within {ADDRESS_ANSWER:?}"))),
    }
}

/// More bytes than an address has as text.
const LONGEST: usize = 256;
