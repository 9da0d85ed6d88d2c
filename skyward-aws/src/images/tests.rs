use aws_sdk_ec2::types::builders::ImageBuilder;
use aws_sdk_ec2::types::{BlockDeviceMapping, EbsBlockDevice};

use super::*;
use crate::loopback::Loopback;

const AMAZON: &str = "898082745236";
const CANONICAL: &str = "099720109477";

fn disk(device: &str, gib: i32) -> BlockDeviceMapping {
    BlockDeviceMapping::builder().device_name(device).ebs(EbsBlockDevice::builder().volume_size(gib).build()).build()
}

fn image(id: &str, owner: &str, name: &str, date: &str) -> ImageBuilder {
    types::Image::builder()
        .image_id(id)
        .owner_id(owner)
        .name(name)
        .creation_date(date)
        .state(ImageState::Available)
        .architecture(ArchitectureValues::X8664)
        .root_device_name("/dev/sda1")
        .block_device_mappings(disk("/dev/sdb", 500))
        .block_device_mappings(disk("/dev/sda1", 35))
}

fn purpose(architecture: Architecture, accelerators: Option<AcceleratorFamily>) -> Purpose<'static> {
    Purpose { architecture, accelerators, region: "eu-west-1", user: None }
}

const X86: Purpose<'_> =
    Purpose { architecture: Architecture::X86_64, accelerators: None, region: "eu-west-1", user: None };

#[test]
fn a_choice_is_a_line_of_images_by_the_machines() {
    use AcceleratorFamily::{Amd, Gaudi, Neuron, Nvidia};
    use Architecture::{Aarch64, X86_64};
    use ImageChoice::{Auto, DeepLearning, Ubuntu};

    for (choice, architecture, family, line) in [
        (Auto, X86_64, None, Some(UBUNTU)),
        (Auto, Aarch64, None, Some(UBUNTU_ARM)),
        (Auto, X86_64, Some(Nvidia), Some(NVIDIA)),
        (Auto, Aarch64, Some(Nvidia), Some(NVIDIA_ARM)),
        (Auto, X86_64, Some(Neuron), Some(NEURON)),
        (Auto, Aarch64, Some(Neuron), None),
        (Auto, X86_64, Some(Amd), None),
        (Auto, X86_64, Some(Gaudi), None),
        (DeepLearning, X86_64, None, Some(NVIDIA)),
        (DeepLearning, X86_64, Some(Neuron), Some(NEURON)),
        (Ubuntu, X86_64, Some(Nvidia), Some(UBUNTU)),
    ] {
        let found = Line::of(&choice, purpose(architecture, family));
        assert_eq!(found.as_ref().ok(), line.as_ref(), "{choice:?} {architecture} {family:?}");
        if let Err(error) = found {
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert!(error.hint().is_some_and(|hint| hint.contains("by its id")));
        }
    }
}

#[test]
fn the_newest_image_of_the_owner_is_taken_and_never_that_of_another() {
    let name = |date: &str| format!("{}{date}", NVIDIA.name);
    let arm = image("ami-arm", AMAZON, &name("20261030"), "2026-10-30T00:00:00.000Z")
        .set_architecture(Some(ArchitectureValues::Arm64));
    let pending = image("ami-pending", AMAZON, &name("20261030"), "2026-10-30T00:00:00.000Z")
        .set_state(Some(ImageState::Pending));
    let bare = image("ami-bare", AMAZON, &name("20261030"), "2026-10-30T00:00:00.000Z").set_root_device_name(None);
    let images: Vec<_> = [
        image("ami-old", AMAZON, &name("20260910"), "2026-09-10T07:00:00.000Z"),
        image("ami-new", AMAZON, &name("20261001"), "2026-10-01T07:00:00.000Z"),
        image("ami-older", AMAZON, &name("20251101"), "2025-11-01T07:00:00.000Z"),
        image("ami-squatter", "666666666666", &name("20991231"), "2099-12-31T00:00:00.000Z"),
        image("ami-other", AMAZON, "Deep Learning AMI GPU PyTorch 2.9", "2026-11-01T00:00:00.000Z"),
        arm,
        pending,
        bare,
    ]
    .map(ImageBuilder::build)
    .into();
    let expected = Image {
        more_devices: vec!["/dev/sdb".into()],
        id: "ami-new".into(),
        name: name("20261001"),
        architecture: Architecture::X86_64,
        root_device: "/dev/sda1".into(),
        snapshot_gib: 35,
        user: "ubuntu".into(),
    };
    assert_eq!(newest(&images, NVIDIA, X86), Some(expected));
    assert_eq!(newest(&images, UBUNTU, X86), None);
    assert_eq!(newest(&[], NVIDIA, X86), None);
}

#[test]
fn a_disk_is_never_smaller_than_the_image() {
    let image = newest(&[image("ami-1", CANONICAL, UBUNTU.name, "2026").build()], UBUNTU, X86).unwrap();
    assert_eq!(image.disk_gib(8), 35);
    assert_eq!(image.disk_gib(35), 35);
    assert_eq!(image.disk_gib(100), 100);
}

#[test]
fn a_named_image_that_cannot_do_is_refused_with_the_reason() {
    let named = || image("ami-1", "123456789012", "mine", "2026-01-01T00:00:00.000Z");
    for (image, why) in [
        (named().set_architecture(Some(ArchitectureValues::Arm64)), "it is for arm64, and the machines have x86_64"),
        (named().set_state(Some(ImageState::Failed)), "its state is failed"),
        (named().set_root_device_name(None), "it has no root disk"),
        (named().set_block_device_mappings(None), "it has no root disk"),
    ] {
        let error = checked(&image.build(), X86).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), format!("no machine can start from the image ami-1 (mine): {why}"));
        assert!(error.hint().is_some());
    }
    assert_eq!(checked(&named().build(), X86).unwrap().id, "ami-1");
}

#[test]
fn who_logs_in_is_told_by_the_name_unless_it_is_said() {
    for (name, user) in [
        ("ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261001", "ubuntu"),
        (NVIDIA.name, "ubuntu"),
        ("al2023-ami-2023.9.20261001.0-kernel-6.12-x86_64", "ec2-user"),
        ("amzn2-ami-hvm-2.0.20261001.0-x86_64-gp2", "ec2-user"),
        ("Deep Learning AMI Neuron (Amazon Linux 2023) 20261001", "ec2-user"),
        ("mine", "ubuntu"),
    ] {
        let named = image("ami-1", "123456789012", name, "2026").build();
        assert_eq!(checked(&named, X86).unwrap().user, user, "{name}");
        let purpose = Purpose { user: Some("admin"), ..X86 };
        assert_eq!(checked(&named, purpose).unwrap().user, "admin", "{name}");
    }
}

fn described(images: &str) -> (u16, String) {
    (
        200,
        format!(
            "<DescribeImagesResponse><requestId>1</requestId><imagesSet>{images}</imagesSet></DescribeImagesResponse>"
        ),
    )
}

fn item(id: &str, owner: &str, name: &str, date: &str) -> String {
    format!(
        "<item><imageId>{id}</imageId><imageOwnerId>{owner}</imageOwnerId><name>{name}</name>\
         <creationDate>{date}</creationDate><imageState>available</imageState><architecture>x86_64</architecture>\
         <rootDeviceName>/dev/sda1</rootDeviceName><blockDeviceMapping><item><deviceName>/dev/sda1</deviceName>\
         <ebs><volumeSize>8</volumeSize></ebs></item></blockDeviceMapping></item>"
    )
}

#[tokio::test]
async fn a_line_is_asked_for_by_the_number_of_its_owner() {
    let service = Loopback::start(|_| {
        let name = format!("{}20261001", UBUNTU.name);
        described(
            &[
                item("ami-1", CANONICAL, &name, "2026-10-01T00:00:00.000Z"),
                item("ami-2", "666666666666", &name, "2027-10-01T00:00:00.000Z"),
            ]
            .concat(),
        )
    });
    let image = Image::resolve(&service.ec2(), &ImageChoice::Auto, X86).await.unwrap();
    assert_eq!(&*image.id, "ami-1");
    assert_eq!(image.snapshot_gib, 8);
    let asked = service.asked().concat();
    for part in [
        "Owner.1=099720109477",
        "ubuntu-noble-24.04-amd64-server-*",
        "Filter.2.Value.1=x86_64",
        "Filter.3.Value.1=available",
    ] {
        let encoded = part.replace('*', "%2A");
        assert!(asked.contains(&encoded) || asked.contains(part), "{part}: {asked}");
    }
}

#[tokio::test]
async fn a_line_without_images_is_an_error_with_what_was_looked_for() {
    let service = Loopback::start(|_| described(""));
    let error = Image::resolve(&service.ec2(), &ImageChoice::Auto, X86).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    for part in ["eu-west-1", CANONICAL, UBUNTU.name, "x86_64"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_id_that_does_not_exist_is_an_error_of_the_specification() {
    let unknown = Loopback::start(|_| {
        let error = "<Response><Errors><Error><Code>InvalidAMIID.NotFound</Code><Message>The image id '[ami-0]' does \
                     not exist</Message></Error></Errors><RequestID>1</RequestID></Response>";
        (400, error.to_owned())
    });
    for service in [unknown, Loopback::start(|_| described(""))] {
        let error = Image::resolve(&service.ec2(), &ImageChoice::Id("ami-0".into()), X86).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), "there is no image ami-0 in eu-west-1 that this account may use");
        assert!(error.hint().is_some_and(|hint| hint.contains("another id in each region")));
    }
    let denied = Loopback::start(|_| {
        (403, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>".into())
    });
    let error = Image::resolve(&denied.ec2(), &ImageChoice::Id("ami-0".into()), X86).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.message().contains("UnauthorizedOperation"), "{error}");
}

#[tokio::test]
async fn images_of_another_partition_are_those_of_its_owner() {
    let service =
        Loopback::start(|_| described(&item("ami-1", "837727238323", &format!("{}20261001", UBUNTU.name), "2026")));
    let china = Purpose { region: "cn-north-1", ..X86 };
    assert_eq!(Image::resolve(&service.ec2(), &ImageChoice::Ubuntu, china).await.unwrap().id.as_str(), "ami-1");
    assert!(service.asked()[0].contains("Owner.1=837727238323"), "{:?}", service.asked());
    let error = Image::resolve(&service.ec2(), &ImageChoice::DeepLearning, china).await.unwrap_err();
    assert!(error.message().contains("cn-north-1") && error.hint().unwrap().contains(".image("), "{error}");
    assert_eq!(service.asked().len(), 1, "nobody else's images are asked for");
}
