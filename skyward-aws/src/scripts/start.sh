# Starts the keeper of this machine as root. Arguments: the machine's folder, the user who runs the
# pool's commands, the time of the launch call by EC2's clock, in seconds since 1970, and the keeper's command.
#
# The keeper starts first, so that the machine ends by its lease even if the rest of the boot hangs. The user may not
# exist yet, because cloud-init makes it later in the same stage.
folder=$1
user=$2
asked=$3
shift 3
umask 077
top=${folder%/*}
mkdir -p -m 711 "$top"
mkdir -p "$folder"
# The user could put a link there, which root must not follow.
[ -e "$folder/lease" ] || [ -L "$folder/lease" ] || : >"$folder/lease"
(
    tries=0
    until chown -h "$user" "$folder/lease" "$folder" 2>/dev/null || [ ! -e "$folder" ] || [ "$tries" -ge 600 ]; do
        tries=$((tries + 1))
        sleep 1
    done
) </dev/null >/dev/null 2>&1 &

is_number() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
}

# The machine's time counts from its launch call, or at the latest from this boot, so that neither a
# late boot nor a reboot extends it. The time since the launch comes from the clock, which may be
# wrong or not set yet; the time since the boot is always right.
born=0
now=$(date +%s 2>/dev/null) || now=
up=
{ read -r up rest </proc/uptime; } 2>/dev/null || up=
up=${up%%.*}
# An image of another machine's disk starts with the script of that machine.
host=$(cat /sys/class/dmi/id/product_uuid 2>/dev/null) || host=
if is_number "$now" && is_number "$up" && [ "$host" = "$(cat "$top/host" 2>/dev/null)" ]; then
    since=$asked
    booted=$((now - up))
    of= first=
    { read -r of first <"$top/began"; } 2>/dev/null || :
    if [ "$of" = "$asked" ] && is_number "$first"; then
        since=$first
    # The time of the launch is EC2's. A clock that is ten minutes behind it is not set yet.
    elif [ "$booted" -ge "$((asked - 600))" ]; then
        # The two clocks differ a little: the machine did not live before it booted.
        [ "$booted" -ge "$asked" ] || since=$booted
        echo "$asked $since" >"$top/began.new" && mv "$top/began.new" "$top/began"
    fi
    # All of them are without their parts of a second: that of the uptime, and that of the launch,
    # make a machine up to two seconds older than it is, and no machine ends too early.
    born=$(((up + 2 - (now - since)) * 100))
    [ "$born" -le 0 ] || born=0
fi
export SKYWARD_KEEPER_BORN="$born"
exec "$@"
