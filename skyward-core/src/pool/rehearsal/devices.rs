//! CPU devices for JAX, in the place of the accelerators of a real pool.

use crate::spec::Image;

/// Has JAX see so many CPU devices in each worker, and nothing else, whatever the image says.
pub(in crate::pool) fn with_cpu_devices(mut image: Image, devices: u32) -> Image {
    for name in [COUNT, PLATFORMS] {
        image.secrets.remove(name);
    }
    // JAX 0.5.0 and before read the flag alone; since 0.5.3 at the latest JAX prefers the variable.
    if let Some(flags) = flags(image.env.get(FLAGS).map_or("", String::as_str), devices)
        && !image.secrets.contains_key(FLAGS)
    {
        image = image.env(FLAGS, flags);
    }
    image.env(COUNT, devices.to_string()).env(PLATFORMS, "cpu")
}

/// The flags with the number of devices in the place of the one that they may say; none where a file has them.
fn flags(given: &str, devices: u32) -> Option<String> {
    let given = given.trim();
    if !given.is_empty() && !given.starts_with('-') {
        return None;
    }
    let others = given.split_whitespace().filter(|flag| flag.split('=').next() != Some(FLAG));
    let own = format!("{FLAG}={devices}");
    Some(others.chain([own.as_str()]).collect::<Vec<_>>().join(" "))
}

const COUNT: &str = "JAX_NUM_CPU_DEVICES";
const PLATFORMS: &str = "JAX_PLATFORMS";
const FLAGS: &str = "XLA_FLAGS";
const FLAG: &str = "--xla_force_host_platform_device_count";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Secret;

    #[test]
    fn the_number_of_devices_takes_the_place_of_what_the_image_says() {
        for (given, flags) in [
            ("", "--xla_force_host_platform_device_count=4"),
            ("--xla_force_host_platform_device_count=8", "--xla_force_host_platform_device_count=4"),
            (
                " --xla_a=1  --xla_force_host_platform_device_count=2 --xla_b ",
                "--xla_a=1 --xla_b --xla_force_host_platform_device_count=4",
            ),
        ] {
            let image = Image::new().env(FLAGS, given).env(COUNT, "16").env(PLATFORMS, "cuda").env("OTHER", "1");
            let image = with_cpu_devices(image, 4);
            let of = |name: &str| image.env[name].as_str();
            assert_eq!((of(FLAGS), of(COUNT), of(PLATFORMS), of("OTHER")), (flags, "4", "cpu", "1"), "{given:?}");
        }
        assert_eq!(with_cpu_devices(Image::new(), 2).env[FLAGS], "--xla_force_host_platform_device_count=2");
    }

    #[test]
    fn flags_in_a_file_and_secret_ones_are_left_as_they_are() {
        let file = with_cpu_devices(Image::new().env(FLAGS, "/etc/xla.flags"), 2);
        assert_eq!(file.env[FLAGS], "/etc/xla.flags");
        let secret = |name: &str| Image::new().secret(name, Secret::new("hunter2"));
        for name in [FLAGS, COUNT, PLATFORMS] {
            with_cpu_devices(secret(name), 2).validate().unwrap();
        }
        assert!(with_cpu_devices(secret(FLAGS), 2).secrets.contains_key(FLAGS));
    }

    #[test]
    fn saying_it_twice_is_saying_it_once() {
        let once = with_cpu_devices(Image::new().env(FLAGS, "--xla_a=1"), 4);
        assert_eq!(with_cpu_devices(once.clone(), 4), once);
    }
}
