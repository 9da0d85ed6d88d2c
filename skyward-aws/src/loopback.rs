//! A service on this host that gives the answers of a test, so that the test includes what the SDK
//! does.

pub(crate) mod ec2;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::Builder;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use aws_smithy_types::retry::RetryConfig;

use crate::aws::Aws;
use crate::options::Addressing;

/// Answers by the body of the request: a status and a body.
type Answer = dyn Fn(&str) -> (u16, String) + Send + Sync;

/// A service, and what it was asked.
#[derive(Clone)]
pub(crate) struct Loopback {
    url: String,
    region: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
    /// How far its clock is ahead of that of this host.
    ahead: Arc<Mutex<Duration>>,
}

impl Loopback {
    pub(crate) fn start(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = Self { url, region: "eu-west-1", asked: Arc::default(), ahead: Arc::default() };
        let (asked, ahead, answer): (_, _, Arc<Answer>) = (this.asked.clone(), this.ahead.clone(), Arc::new(answer));
        // Both kinds of threads end with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, ahead, answer) = (asked.clone(), ahead.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &asked, &ahead, &*answer));
            }
        });
        this
    }

    /// The bodies of all requests.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Sets how far its clock is ahead of that of this host.
    pub(crate) fn ahead(self, ahead: Duration) -> Self {
        *self.ahead.lock().unwrap() = ahead;
        self
    }

    /// The parameters of the requests of an action.
    pub(crate) fn asked_of(&self, action: &str) -> Vec<BTreeMap<String, String>> {
        let forms = self.asked().into_iter().map(|body| form_urlencoded::parse(body.as_bytes()).into_owned().collect());
        let forms = forms.collect::<Vec<BTreeMap<String, String>>>().into_iter();
        forms.filter(|form| form.get("Action").is_some_and(|known| known == action)).collect()
    }

    /// A provider whose calls of all services come here.
    pub(crate) fn aws(&self) -> Aws {
        Aws::new()
            .region(self.region)
            .endpoint_url(&self.url)
            .credentials("AKIDEXAMPLE", "secret", None)
            .subnets(["subnet-a", "subnet-b"])
            .addressing(Addressing::Private)
            .without_cache()
    }

    pub(crate) fn ec2(&self) -> aws_sdk_ec2::Client {
        aws_sdk_ec2::Client::from_conf(
            aws_sdk_ec2::Config::builder()
                .behavior_version(BehaviorVersion::v2026_01_12())
                .region(Region::new(self.region))
                .credentials_provider(credentials())
                .endpoint_url(&self.url)
                .http_client(Builder::new().build_http())
                .retry_config(RetryConfig::disabled())
                .build(),
        )
    }

    pub(crate) fn pricing(&self) -> aws_sdk_pricing::Client {
        aws_sdk_pricing::Client::from_conf(
            aws_sdk_pricing::Config::builder()
                .behavior_version(aws_sdk_pricing::config::BehaviorVersion::v2026_01_12())
                .region(aws_sdk_pricing::config::Region::new("us-east-1"))
                .credentials_provider(credentials())
                .endpoint_url(&self.url)
                .http_client(Builder::new().build_http())
                .retry_config(RetryConfig::disabled())
                .build(),
        )
    }

    pub(crate) fn quotas(&self) -> aws_sdk_servicequotas::Client {
        aws_sdk_servicequotas::Client::from_conf(
            aws_sdk_servicequotas::Config::builder()
                .behavior_version(aws_sdk_servicequotas::config::BehaviorVersion::v2026_01_12())
                .region(aws_sdk_servicequotas::config::Region::new(self.region))
                .credentials_provider(credentials())
                .endpoint_url(&self.url)
                .http_client(Builder::new().build_http())
                .retry_config(RetryConfig::disabled())
                .build(),
        )
    }
}

fn credentials() -> Credentials {
    Credentials::new("AKIDEXAMPLE", "secret", None, None, "test")
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<String>>, ahead: &Mutex<Duration>, answer: &Answer) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(body) = request(&mut reader) {
        asked.lock().unwrap().push(body.clone());
        let (status, body) = answer(&body);
        let now = DateTime::from(SystemTime::now() + *ahead.lock().unwrap()).fmt(Format::HttpDate).unwrap();
        let head = format!("HTTP/1.1 {status} Told\r\ndate: {now}\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body.as_bytes())).is_err() {
            return;
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            return String::from_utf8(body).ok();
        }
    }
}
