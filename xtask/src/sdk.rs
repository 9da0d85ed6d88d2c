//! The SDK of a cloud: what belongs to it. It takes minutes and gigabytes to compile.

/// Whether a crate is of the SDK of a cloud, or needs it.
pub(crate) fn is_of_cloud(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What begins with it belongs to the SDK of a cloud.
const PREFIXES: &[&str] = &["aws-", "aws_", "rusoto", "azure", "google-cloud", "gcloud", "gcp", "skyward-aws"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_crates_are_distinguished_from_others() {
        assert!(is_of_cloud("aws-sdk-ec2") && is_of_cloud("azure_core"));
        assert!(!is_of_cloud("await-tree") && !is_of_cloud("skyward-core"));
    }
}
