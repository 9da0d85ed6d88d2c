//! The client's own address as AWS sees it. By default, no other address may log in to the machines
//! of a pool.

use std::net::IpAddr;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Response, Uri, body::Incoming};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use ipnet::IpNet;
use skyward_core::error::{Error, ErrorKind, Result};
use tokio::time::timeout;

use crate::errors::chain;
use crate::proxy::Proxy;
use crate::timing::ADDRESS_ANSWER;

/// Asks a service that answers with the address that it is asked from, through the proxy of the
/// environment: behind a proxy, it sees the proxy's address.
///
/// # Errors
///
/// [`ErrorKind::Provider`], temporary, when it does not answer, or not with an address.
///
/// # Cancel safety
///
/// The call changes nothing.
pub(crate) async fn of_client(service: &str) -> Result<IpNet> {
    ask(service, Proxy::of_environment().as_ref()).await
}

async fn ask(service: &str, proxy: Option<&Proxy>) -> Result<IpNet> {
    let failed = |why: String| {
        Error::new(ErrorKind::Provider, format!("{service} did not return this client's address: {why}"))
            .with_hint("set the networks that may log in to the machines, `.ssh_from([\"203.0.113.7/32\"])`; or name another service, `.address_service(\"https://…\")`")
            .temporary()
    };
    let uri: Uri = service.parse().map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, format!("`{service}` is no URL"))
            .with_hint("it looks like `https://checkip.amazonaws.com`")
    })?;
    let ask = async {
        // The crypto provider is named here: rustls chooses none in a program that contains two.
        let provider = rustls::crypto::ring::default_provider();
        let https = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider);
        let https = https.map_err(|error| error.to_string())?;
        let https = https.https_or_http().enable_http1();
        let answer = match proxy.and_then(|proxy| proxy.matcher().intercept(&uri)) {
            None => get(https.build(), uri).await?,
            Some(proxy) => {
                let tunnel = Tunnel::new(proxy.uri().clone(), HttpConnector::new());
                let tunnel = match proxy.basic_auth() {
                    Some(password) => tunnel.with_auth(password.clone()),
                    None => tunnel,
                };
                let through = proxy.uri().authority().map(ToString::to_string).unwrap_or_default();
                let answer = get(https.wrap_connector(tunnel), uri).await;
                answer.map_err(|why| format!("through the proxy {through}: {why}"))?
            }
        };
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

async fn get<C>(connector: C, uri: Uri) -> std::result::Result<Response<Incoming>, String>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    client.get(uri).await.map_err(|error| chain(&error))
}

/// More bytes than an address has as text.
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_service_is_asked_through_the_proxy_with_its_password() {
        let (address, asked) = crate::proxy::closed().await;
        let proxy = Proxy::named(&format!("http://ada:secret@{address}"));
        let error = ask("https://address.skyward.invalid", Some(&proxy)).await.unwrap_err();
        assert!(error.message().contains(&format!("through the proxy {address}")), "{error}");
        assert!(!format!("{error:#}").contains("secret"), "{error:#}");
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("connect address.skyward.invalid:443 http/1.1"), "{asked}");
        assert!(asked.contains("proxy-authorization: basic ywrhonnly3jlda=="), "{asked}");
    }
}
