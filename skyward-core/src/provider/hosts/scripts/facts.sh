# Prints what this host has, and who has its slots. Earlier lines set: look.
echo "skyward-cpus $(nproc)"
read -r key kib rest </proc/meminfo
[ "$key" != MemTotal: ] || echo "skyward-memory_kib $kib"
{ read -r limit </sys/fs/cgroup/memory.max; } 2>/dev/null || limit=max
[ "$limit" = max ] || echo "skyward-memory_kib $((limit / 1024))"
echo "skyward-architecture $(uname -m)"
# The folder may not exist yet.
there=$base
while [ ! -d "$there" ] && [ "$there" != "${there%/*}" ]; do
    there=${there%/*}
done
disk=$(df -Pk "${there:-/}" 2>/dev/null | awk 'NR == 2 { print $4 }') || :
[ -z "$disk" ] || echo "skyward-disk_kib $disk"
if [ -e /proc/driver/nvidia ]; then
    if [ "$look" = close ] && found=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null); then
        echo "$found" | sed 's/^/skyward-device /'
    else
        sed -n 's/^Model: *\(.*\)/skyward-device \1, ?/p' /proc/driver/nvidia/gpus/*/information 2>/dev/null || :
    fi
fi
look_elsewhere
slot=0
while [ "$slot" -lt "$slots" ]; do
    look_up_slot "$slot"
    look_up_user "$slot"
    if [ -n "$user" ]; then
        echo "skyward-taken $slot user $user"
    elif is_record "$file"; then
        look_up "$file" machine
        holder=$said
        folder_of "$holder"
        if held "$file" || is_renewed "$file" "$folder"; then
            look_up "$file" pool
            echo "skyward-taken $slot $said $holder"
        fi
    fi
    slot=$((slot + 1))
done
tell_logind '' /proc/self/cgroup
