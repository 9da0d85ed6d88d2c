//! A client's call, for the log and for rules.

use std::collections::BTreeMap;

use hyper::HeaderMap;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The service in the signature: `ec2`, `sts`, `pricing`; empty in a call without a signature.
    pub service: String,
    /// The region in the signature; empty in a call without a signature.
    pub region: String,
    /// The action's name, such as `RunInstances`.
    pub action: String,
    /// The parameters of a call of EC2 by their names in its query protocol:
    /// `NetworkInterface.1.SubnetId`.
    pub parameters: BTreeMap<String, String>,
    /// The body of a call that is not a form.
    pub body: String,
}

impl Call {
    pub(crate) fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // AWS4-HMAC-SHA256 Credential=KEY/20260101/eu-west-1/ec2/aws4_request, SignedHeaders=…
        let scope = header("authorization").split(['=', ',']).nth(1).unwrap_or_default();
        let mut scope = scope.split('/').skip(2).map(str::to_owned);
        let (region, service) = (scope.next().unwrap_or_default(), scope.next().unwrap_or_default());
        let target = header("x-amz-target").rsplit('.').next().unwrap_or_default().to_owned();
        if header("content-type").starts_with("application/x-www-form-urlencoded") {
            let mut parameters: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
            let action = parameters.remove("Action").unwrap_or(target);
            parameters.remove("Version");
            return Self { service, region, action, parameters, body: String::new() };
        }
        let body = String::from_utf8_lossy(body).into_owned();
        Self { service, region, action: target, parameters: BTreeMap::new(), body }
    }

    /// A parameter, empty where it is not given.
    pub fn get(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    /// A parameter that is a list: `InstanceId` of `InstanceId.1`, `InstanceId.2`.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let numbered = (1..).map(|number| self.parameters.get(&format!("{name}.{number}")));
        numbered.map_while(|value| value.map(String::as_str)).collect()
    }

    /// The filters of a call that describes: name and values.
    pub fn filters(&self) -> Vec<(&str, Vec<&str>)> {
        let names = (1..).map(|number| (number, self.parameters.get(&format!("Filter.{number}.Name"))));
        let names = names.map_while(|(number, name)| Some((number, name?.as_str())));
        names.map(|(number, name)| (name, self.list(&format!("Filter.{number}.Value")))).collect()
    }

    /// Whether the call is one in JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.parameters.is_empty() && !self.body.is_empty()
    }

    /// Whether the call is a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.get("DryRun") == "true"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        values.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_form_is_read_with_its_lists_and_filters() {
        let signature = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-west-1/ec2/aws4_request, SignedHeaders=host";
        let headers = headers(&[("authorization", signature), ("content-type", "application/x-www-form-urlencoded")]);
        let body = "Action=DescribeInstances&Version=2016-11-15&InstanceId.1=i-1&InstanceId.2=i-2\
            &Filter.1.Name=tag%3Ak&Filter.1.Value.1=a&Filter.1.Value.2=b+c";
        let call = Call::read(&headers, body.as_bytes());
        assert_eq!(call.service.as_str(), "ec2");
        assert_eq!(call.region.as_str(), "eu-west-1");
        assert_eq!(call.action, "DescribeInstances");
        assert_eq!(call.list("InstanceId"), ["i-1", "i-2"]);
        assert_eq!(call.filters(), [("tag:k", vec!["a", "b c"])]);
        assert!(call.get("Version").is_empty());
    }

    #[test]
    fn a_call_in_json_is_known_by_its_target() {
        let headers = headers(&[("x-amz-target", "AWSPriceListService.GetProducts")]);
        let call = Call::read(&headers, br#"{"ServiceCode":"AmazonEC2"}"#);
        assert_eq!(call.action.as_str(), "GetProducts");
        assert_eq!(call.service.as_str(), "");
        assert!(call.body.contains("AmazonEC2"));
    }
}
