# Makes the root of a machine and is its first process. It runs in namespaces of its own for mounts, processes and the host's name.
#
# Arguments: a folder of the host for the machine, the host's folder that is its user's cache, the user, its name, its
# address, the address of what plays systemd, whether it has an NVIDIA GPU.
#
# Files are written to memory, except those in /home and /tmp, which are in the folder: environments take gigabytes.

set -e
folder=$1 cache=$2 user=$3 name=$4 address=$5 control=$6 nvidia=$7

mkdir -p "$folder/over" "$folder/home/$user/.cache" "$folder/tmp"
chmod 1777 "$folder/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$folder/over"
mkdir "$folder/over/upper" "$folder/over/work" "$folder/over/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/over/upper,workdir=$folder/over/work" "$folder/over/root"
cd "$folder/over/root"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount -t tmpfs -o mode=0755 tmpfs run
mkdir run/sshd run/lock
mount --bind "$folder/tmp" tmp
mount --bind "$folder/home" home
mount --bind "$cache" "home/$user/.cache"
# What is the host's user's alone is nothing of an image's.
mount -t tmpfs -o mode=0700 tmpfs root

# As an image of EC2 is before its first boot: without users, keys and services that were added.
sed -i -E -e "/^$user:/d" -e '/^[^:]*:[^:]*:1000:/d' etc/passwd etc/group
if [ -e etc/shadow ]; then
    sed -i -E "/^$user:/d" etc/shadow
fi
if [ -e etc/gshadow ]; then
    sed -i -E "/^$user:/d" etc/gshadow
fi
rm -rf etc/ssh/ssh_host_* etc/ssh/sshd_config.d/* etc/sudoers.d/* etc/subuid etc/subgid
mkdir -p etc/ssh/sshd_config.d etc/sudoers.d etc/systemd/system
# What was written there is there after a reboot, as all of the disk is on EC2.
for kept in etc/systemd/system var/lib/skyward; do
    mkdir -p "$kept"
    if [ ! -d "$folder/disk/$kept" ]; then
        mkdir -p "$folder/disk/${kept%/*}"
        cp -a "$kept" "$folder/disk/$kept"
    fi
    mount --bind "$folder/disk/$kept" "$kept"
done
hostname "$name"
echo "$name" >etc/hostname
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >etc/hosts

# No systemd runs here: its programs ask the hypervisor.
for program in systemctl shutdown poweroff reboot halt; do
    rm -f "bin/$program" "sbin/$program" "usr/bin/$program" "usr/sbin/$program"
    cat >"usr/bin/$program" <<END
#!/bin/bash
case "\${0##*/} \$*" in
    systemctl\ is-* | systemctl\ status* | systemctl\ --version) ;;
    *) if [ "\$EUID" != 0 ]; then echo "\${0##*/}: Interactive authentication required." >&2; exit 1; fi ;;
esac
exec 3<>/dev/tcp/$control || exit 1
printf '%s\n' "\${0##*/}" "\$@" '' >&3
read -r code <&3 || exit 1
cat <&3
exit "\$code"
END
    chmod 0755 "usr/bin/$program"
    [ -e "usr/sbin/$program" ] || ln -s "../bin/$program" "usr/sbin/$program"
done
if [ "$nvidia" != 0 ]; then
    cat >usr/bin/nvidia-smi <<END
#!/bin/sh
case "\$*" in
    '') echo 'NVIDIA-SMI 570.172.08    Driver Version: 570.172.08    CUDA Version: 12.8' ;;
    -L) for number in \$(seq 0 $((nvidia - 1))); do echo "GPU \$number: NVIDIA A10G (UUID: GPU-0000000\$number)"; done ;;
    *) for number in \$(seq 1 $nvidia); do echo 'NVIDIA A10G, 23028 MiB, 570.172.08'; done ;;
esac
END
    chmod 0755 usr/bin/nvidia-smi
fi

mkdir mnt/host
pivot_root . mnt/host
cd /
umount -l /mnt/host
rmdir /mnt/host

echo ready
# Processes that lose their parent become children of this one, which reaps them.
exec </dev/null >/dev/null 2>&1
trap : TERM INT HUP
while :; do
    sleep infinity &
    wait
done
