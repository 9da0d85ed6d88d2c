# Starts the keeper of this machine as root; the words that follow are its command. The first three:
# the machine's folder, the user who runs the pool's commands, and when the launch was asked for, in
# seconds since 1970.
#
# The keeper comes first: whatever else of the boot hangs, the machine ends by its lease. The user need not be there yet, since cloud-init makes it later in the same stage.
folder=$1
user=$2
asked=$3
shift 3
umask 077
top=${folder%/*}
mkdir -p -m 711 "$top"
mkdir -p "$folder"
# The user may put a link there, and root follows none.
[ -e "$folder/lease" ] || [ -L "$folder/lease" ] || : >"$folder/lease"
(
    tries=0
    until chown -h "$user" "$folder/lease" "$folder" 2>/dev/null || [ "$tries" -ge 600 ]; do
        tries=$((tries + 1))
        sleep 1
    done
) </dev/null >/dev/null 2>&1 &

is_number() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
}

# The machine's life is counted from when its launch was asked for, and at least from this boot:
# neither a reboot nor a boot that comes late gives it more time. The one is told by the clock,
# which may be wrong or not be set yet, the other cannot be.
born=0
now=$(date +%s 2>/dev/null) || now=
up=
{ read -r up rest </proc/uptime; } 2>/dev/null || up=
up=${up%%.*}
# An image that was made of the disk of another machine begins with that one's script.
host=$(cat /sys/class/dmi/id/product_uuid 2>/dev/null) || host=
if is_number "$now" && is_number "$up" && [ "$host" = "$(cat "$top/host" 2>/dev/null)" ]; then
    since=$asked
    booted=$((now - up))
    of= first=
    { read -r of first <"$top/began"; } 2>/dev/null || :
    if [ "$of" = "$asked" ] && is_number "$first"; then
        since=$first
    # A client's clock is right to five minutes, or EC2 refuses its calls: this one is set.
    elif [ "$booted" -ge "$((asked - 600))" ]; then
        # The client's is ahead: the machine did not live before it booted.
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
