# Boots this host's systemd as the first process of namespaces, on this host's files with changes that are kept in
# memory. $1 is a folder, whose folder `shared` the system has as /dev/shared. Exits with 130 when the system has powered
# itself off: the kernel ends the first process with SIGINT then, as pid_namespaces(7) says.
#
# The system has its own control groups, so that systemd finds the processes of a unit.
set -eu
folder=$1
mkdir -p "$folder/groups" "$folder/over"
mount -t cgroup2 cgroup2 "$folder/groups"
group=$folder/groups/skyward-systemd-$$
mkdir "$group"
echo $$ >"$group/cgroup.procs"
code=0
setpriv --pdeathsig KILL -- unshare --cgroup --mount --pid --uts --ipc --net --fork --kill-child=KILL sh -euc '
folder=$1
mount -t tmpfs -o mode=0755 tmpfs "$folder/over"
cd "$folder/over"
mkdir upper work root
mount -t overlay -o "lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work" overlay root
cd root
mount -t proc proc proc
# Files of the kernel that are not of a namespace are those of this host.
[ ! -e proc/sysrq-trigger ] || mount --bind /dev/null proc/sysrq-trigger
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
for device in null zero full random urandom; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs -o mode=0755 tmpfs run
mkdir -p mnt/host
# systemd unmounts at its end what is not below /dev, /proc or /sys.
mkdir dev/shared
mount --bind "$folder/shared" dev/shared
# Nothing of what this host is set up to mount or to run.
: >etc/fstab
: >etc/machine-id
rm -rf etc/systemd/system etc/systemd/*.conf etc/systemd/*.conf.d var/lib/skyward
mkdir -p etc/systemd/system
cp -r dev/shared/units/. etc/systemd/system
ln -sf "$(command -v systemctl)" usr/sbin/poweroff
pivot_root . mnt/host
cd /
umount -l /mnt/host
for init in /usr/lib/systemd/systemd /lib/systemd/systemd; do
    [ ! -x "$init" ] || break
done
exec env -i container=skyward PATH=/usr/sbin:/usr/bin:/sbin:/bin "$init" --unit=system.target --show-status=no
' boot "$folder" || code=$?
# A group that still has processes is left.
echo $$ >"$folder/groups/cgroup.procs"
find "$group" -depth -type d -exec rmdir {} \; || :
exit "$code"
