//! For rehearsals: gives JAX CPU devices in place of the accelerators of the real pool.

use crate::spec::Image;

/// Makes JAX see `devices` CPU devices in each worker, and no other devices, whatever the image
/// sets.
pub(super) fn with_cpu_devices(mut image: Image, devices: u32) -> Image {
    for name in [COUNT, PLATFORMS] {
        image.secrets.remove(name);
    }
    // JAX up to 0.5.0 reads only the flag; from 0.5.3 at the latest, JAX prefers the variable.
    if let Some(flags) = flags(image.env.get(FLAGS).map_or("", String::as_str), devices)
        && !image.secrets.contains_key(FLAGS)
    {
        image = image.env(FLAGS, flags);
    }
    image.env(COUNT, devices.to_string()).env(PLATFORMS, "cpu")
}

/// Returns the flags with the number of devices set, or replaced if the flags already set it.
/// Returns `None` if the variable names a file that contains the flags.
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
    fn the_number_of_devices_replaces_the_number_in_the_image() {
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
            assert_eq!(of(FLAGS), flags, "{given:?}");
            assert_eq!(of(COUNT), "4", "{given:?}");
            assert_eq!(of(PLATFORMS), "cpu", "{given:?}");
            assert_eq!(of("OTHER"), "1", "{given:?}");
        }
        assert_eq!(with_cpu_devices(Image::new(), 2).env[FLAGS], "--xla_force_host_platform_device_count=2");
    }

    #[test]
    fn flags_in_a_file_and_secret_flags_are_not_changed() {
        let file = with_cpu_devices(Image::new().env(FLAGS, "/etc/xla.flags"), 2);
        assert_eq!(file.env[FLAGS], "/etc/xla.flags");
        let secret = |name: &str| Image::new().secret(name, Secret::new("hunter2"));
        for name in [FLAGS, COUNT, PLATFORMS] {
            with_cpu_devices(secret(name), 2).validate().unwrap();
        }
        assert!(with_cpu_devices(secret(FLAGS), 2).secrets.contains_key(FLAGS));
    }

    #[test]
    fn setting_the_devices_twice_has_the_effect_of_setting_them_once() {
        let once = with_cpu_devices(Image::new().env(FLAGS, "--xla_a=1"), 4);
        assert_eq!(with_cpu_devices(once.clone(), 4), once);
    }
}
