//! An EC2 that sells one type in two zones, on demand and as spot, and lists no machine.

/// The answer to a call, also to one of STS or Pricing. It refuses every launch but dry ones, for a
/// reason after which nothing else is tried.
pub(crate) fn answer(body: &str) -> (u16, String) {
    let Some((_, action)) = body.split_once("Action=") else { return (200, r#"{"PriceList":[]}"#.to_owned()) };
    let action = action.split('&').next().unwrap_or_default();
    let listed = |set: &str, items: &str| format!("<{set}>{items}</{set}>");
    let inner = match action {
        "GetCallerIdentity" => {
            "<GetCallerIdentityResult><Account>123456789012</Account><Arn>arn:aws:iam::123456789012:user/ada</Arn>\
             </GetCallerIdentityResult>"
                .to_owned()
        }
        "DescribeSubnets" => {
            let item = |letter: &str| {
                format!(
                    "<item><subnetId>subnet-{letter}</subnetId><vpcId>vpc-1</vpcId><availabilityZone>eu-west-1{letter}\
                     </availabilityZone><availableIpAddressCount>9</availableIpAddressCount></item>"
                )
            };
            listed("subnetSet", &[item("a"), item("b")].concat())
        }
        "DescribeRouteTables" => listed(
            "routeTableSet",
            "<item><vpcId>vpc-1</vpcId><routeSet><item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>\
             <natGatewayId>nat-1</natGatewayId></item></routeSet><associationSet><item><main>true</main></item>\
             </associationSet></item>",
        ),
        "DescribeVpcs" => listed("vpcSet", "<item><vpcId>vpc-1</vpcId><cidrBlock>10.0.0.0/16</cidrBlock></item>"),
        "CreateSecurityGroup" => "<groupId>sg-1</groupId>".to_owned(),
        "DescribeImages" => listed(
            "imagesSet",
            "<item><imageId>ami-1</imageId><imageOwnerId>099720109477</imageOwnerId><name>\
             ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261001</name><creationDate>\
             2026-10-01T00:00:00.000Z</creationDate><imageState>available</imageState><architecture>x86_64\
             </architecture><rootDeviceName>/dev/sda1</rootDeviceName><blockDeviceMapping><item><deviceName>/dev/sda1\
             </deviceName><ebs><volumeSize>8</volumeSize></ebs></item></blockDeviceMapping></item>",
        ),
        "DescribeInstanceTypes" => listed(
            "instanceTypeSet",
            "<item><instanceType>c7a.large</instanceType><currentGeneration>true</currentGeneration>\
             <supportedUsageClasses><item>on-demand</item><item>spot</item></supportedUsageClasses><processorInfo>\
             <supportedArchitectures><item>x86_64</item></supportedArchitectures></processorInfo><vCpuInfo>\
             <defaultVCpus>2</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>4096</sizeInMiB></memoryInfo></item>",
        ),
        "DescribeInstanceTypeOfferings" => {
            let item = |zone| format!("<item><instanceType>c7a.large</instanceType><location>{zone}</location></item>");
            listed("instanceTypeOfferingSet", &[item("eu-west-1a"), item("eu-west-1b")].concat())
        }
        "DescribeSpotPriceHistory" => {
            let item = |zone, price| {
                format!(
                    "<item><instanceType>c7a.large</instanceType><spotPrice>{price}</spotPrice><timestamp>\
                     2026-11-01T10:00:00.000Z</timestamp><availabilityZone>{zone}</availabilityZone></item>"
                )
            };
            listed("spotPriceHistorySet", &[item("eu-west-1a", "0.0375"), item("eu-west-1b", "0.04")].concat())
        }
        "RunInstances" if body.contains("DryRun=true") => return (412, error("DryRunOperation", "It would succeed.")),
        "RunInstances" => return (403, error("AccountDisabled", "The account is disabled.")),
        // Lists are empty, and changes happen.
        _ => String::new(),
    };
    (200, format!("<{action}Response>{inner}</{action}Response>"))
}

/// An error as EC2 answers with it.
pub(crate) fn error(code: &str, message: &str) -> String {
    format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>\
         <RequestID>1</RequestID></Response>"
    )
}
