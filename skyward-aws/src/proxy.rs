//! The proxy through which the services of AWS are called, if the environment names one.

use aws_sdk_ec2::config::SharedHttpClient;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, Connector};
use hyper_util::client::proxy::matcher::Matcher;
use skyward_core::error::{Error, ErrorKind, Result};

/// A proxy for https, as curl and AWS's own tools read it from the environment:
/// <https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-proxy.html>.
///
/// Only what is called by https goes through it. An instance's metadata and a container's
/// credentials are called by http, on this host or its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    url: String,
    /// The hosts that are called without it.
    without: String,
}

impl Proxy {
    /// The proxy that the environment of this process names.
    pub(crate) fn of_environment() -> Option<Self> {
        Self::of(|name| std::env::var(name).ok())
    }

    /// The proxy that these variables name.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let first = |names: &[&str]| {
            let values = names.iter().filter_map(|name| variable(name));
            values.map(|value| value.trim().to_owned()).find(|value| !value.is_empty())
        };
        let url = first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])?;
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        Some(Self { url, without: first(&["NO_PROXY", "no_proxy"]).unwrap_or_default() })
    }

    /// The proxy at this URL, for all hosts.
    #[cfg(test)]
    pub(crate) fn named(url: &str) -> Self {
        Self { url: url.to_owned(), without: String::new() }
    }

    /// Which URLs it serves.
    pub(crate) fn matcher(&self) -> Matcher {
        Matcher::builder().https(self.url.clone()).no(self.without.clone()).build()
    }

    fn config(&self) -> Result<ProxyConfig> {
        let config = ProxyConfig::https(self.url.as_str()).map_err(|error| {
            // The URL may contain a password.
            Error::new(ErrorKind::InvalidSpec, format!("the proxy of the environment cannot be used: {error}"))
                .with_hint("HTTPS_PROXY looks like `http://proxy.example.com:3128`; NO_PROXY lists the hosts that are called without it")
        })?;
        Ok(config.no_proxy(&self.without))
    }
}

/// The client for calls of AWS, through this proxy.
///
/// # Errors
///
/// [`ErrorKind::InvalidSpec`] where the proxy is no URL.
pub(crate) fn http_client(proxy: Option<&Proxy>) -> Result<SharedHttpClient> {
    let proxy = match proxy {
        Some(proxy) => proxy.config()?,
        None => ProxyConfig::disabled(),
    };
    Ok(Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder();
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector.set_proxy_config(Some(proxy.clone()));
        connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).build()
    }))
}

/// A proxy that lets nothing through. Returns its address, and then the first request that it gets,
/// in lower case.
#[cfg(test)]
pub(crate) async fn closed() -> (std::net::SocketAddr, tokio::task::JoinHandle<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&request[..length]).to_lowercase()
    });
    (address, asked)
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::Client;
    use aws_sdk_ec2::config::retry::RetryConfig;
    use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};

    use super::*;
    use crate::errors::called;

    #[tokio::test]
    async fn calls_of_aws_are_tunnelled_by_the_proxy_with_its_password() {
        let (address, asked) = closed().await;
        let proxy = Proxy::named(&format!("http://ada:secret@{address}"));
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("eu-west-1"))
            .credentials_provider(Credentials::new("id", "key", None, None, "test"))
            .retry_config(RetryConfig::disabled())
            .http_client(http_client(Some(&proxy)).unwrap());
        let answer = Client::from_conf(config.build()).describe_vpcs().send().await;
        let shown = format!("{:?}", called("DescribeVpcs", answer).unwrap_err());
        assert!(!shown.contains("secret"), "{shown}");
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("connect ec2.eu-west-1.amazonaws.com:443 http/1.1"), "{asked}");
        assert!(asked.contains("proxy-authorization: basic ywrhonnly3jlda=="), "{asked}");
    }

    fn of(variables: &[(&str, &str)]) -> Option<Proxy> {
        Proxy::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_proxy_for_https_is_the_one_that_the_environment_names() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("HTTPS_PROXY", " ")]), None);
        assert_eq!(of(&[("HTTP_PROXY", "http://proxy:1")]), None, "AWS is called by https");
        let proxy =
            of(&[("all_proxy", "http://other:2"), ("https_proxy", "proxy:3128"), ("no_proxy", "a.b,10.0.0.0/8")]);
        let proxy = proxy.unwrap();
        assert_eq!(proxy.url.as_str(), "http://proxy:3128");
        let is_served = |url: &str| proxy.matcher().intercept(&url.parse().unwrap()).is_some();
        assert!(is_served("https://ec2.eu-west-1.amazonaws.com"));
        for url in ["https://a.b", "https://10.1.2.3", "http://169.254.169.254/latest"] {
            assert!(!is_served(url), "{url}");
        }
    }

    #[test]
    fn a_proxy_that_is_no_url_is_refused() {
        let error = of(&[("HTTPS_PROXY", "socks5://proxy:1080")]).unwrap().config().unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidSpec && error.hint().is_some_and(|hint| hint.contains("HTTPS_PROXY"))
        );
    }
}
