# Keeps a machine for as long as its lease is renewed, and ends it when that stops, or when its life is over. The lease is the file `lease` in the machine's folder: any change of its
# time is a renewal. What is counted for the lease is looks without a change, so that neither a clock that is set nor a host that was suspended means anything. Its life is counted by
# the clock that begins with the host, which nobody can set, and by the pauses between the looks where that clock cannot be read.
#
# Arguments: the machine's folder; the seconds between two looks; how many looks without a renewal end the machine; how many do before the first renewal; the machine's life from now on
# in hundredths of a second, 0 for one without end; how the machine is ended:
#   processes   all processes that carry its mark are killed, and its folder is removed
#   exit        this process ends: it is the first of a container, with which all others end
#   off         the host is powered off: this process is root's, and the host is the machine
# Then, for `processes` alone: its mark; what to touch now and then, because it may lie where files are cleaned by age. Whoever starts it may give it locks as descriptors 4, 6 and 9,
# which are held until nothing of the machine is left.
#
# A process that cannot be started, at a limit of processes, ends nothing and counts as no look. In dash and busybox that is an error, which `command eval` catches; bash ends
# then, and its trap on EXIT puts a new one in its place, with the same id, locks and count. bash also waits without starting a process.
#
# bash is started with --norc and --posix. Without them it runs the user's ~/.bashrc when sshd is above
# it, and the file that BASH_ENV names: before TERM is caught, and with the locks in all that they start.

folder=$1
pause=$2
looks=$3
first=$4
life=$5
end=$6
mark=${7:-}
record=${8:-}
share=${9:-}
seen=${SKYWARD_KEEPER_SEEN:-}
renewed=${SKYWARD_KEEPER_RENEWED:-}
born=${SKYWARD_KEEPER_BORN:-}
waited=${SKYWARD_KEEPER_WAITED:-0}
same=${SKYWARD_KEEPER_SAME:-0}
asked=${SKYWARD_KEEPER_ASKED:-}

trap 'asked=1' TERM INT
trap '' HUP
if [ -n "${BASH_EXECUTION_STRING:-}" ]; then
    # A signal ends `read` only so.
    set -o posix
    again() {
        export SKYWARD_KEEPER_SEEN="$seen" SKYWARD_KEEPER_SAME="$same" SKYWARD_KEEPER_ASKED="$asked"
        export SKYWARD_KEEPER_RENEWED="$renewed" SKYWARD_KEEPER_BORN="$born" SKYWARD_KEEPER_WAITED="$waited"
        exec bash --norc --posix -c "$BASH_EXECUTION_STRING" keeper "$folder" "$pause" "$looks" "$first" "$life" "$end" "$mark" "$record" "$share"
    }
    trap again EXIT
fi

# The programs that it starts do not hold the locks; the shells that it forks do. So whoever holds them
# has the command line of this script, by which the end of a machine knows those that do not end.
without_locks='3>&- 4>&- 6>&- 9>&-'

# Does what needs processes.
attempt() {
    command eval "$1" 2>/dev/null
}

# Waits for so many seconds, or for a signal; `paused` says whether it could.
doze() {
    paused=1
    if [ -n "${BASH_VERSION:-}" ] && [ -p /proc/$$/fd/3 ]; then
        read -r -t "$1" nothing <&3 || :
    # Marked, so that it does not outlive the machine when this process is killed. In the foreground: dash may wait for ever for a child in the background once a fork has failed.
    elif ! attempt "SKYWARD_MACHINE=\$mark sleep $1 $without_locks" && [ -z "$asked" ]; then
        paused=
        # Not every shell can.
        attempt 'read -r -t 1 nothing <&3' || :
    fi
}

# Hundredths of a second, of a number of seconds with or without a fraction: `hundredths`, empty where it is no number.
tell_hundredths() {
    case $1 in
        '' | *[!0-9.]* | *.*.* | .*) hundredths= ;;
        *.*)
            hundredths=${1#*.}00
            # As a number of its own it would be read as an octal one.
            hundredths=$((${1%.*} * 100 + 1${hundredths%"${hundredths#??}"} - 100))
            ;;
        *) hundredths=$(($1 * 100)) ;;
    esac
}

# Since when the host is up: `hundredths`, empty where that cannot be read.
tell_uptime() {
    up=
    { read -r up rest </proc/uptime; } 2>/dev/null || up=
    tell_hundredths "$up"
}

# What is left of the machine's life: `left`. Nothing that is counted goes faster than time does, so what has counted most is right.
tell_left() {
    tell_uptime
    left=$waited
    if [ -n "$born" ] && [ -n "$hundredths" ] && [ "$((hundredths - born))" -gt "$left" ]; then
        left=$((hundredths - born))
    fi
    left=$((life - left))
}

umask 077
if [ -z "$seen$asked" ]; then
    [ -d "$folder" ] || eval "mkdir -p \"\$folder\" $without_locks"
    [ -e "$folder/lease" ] || : >"$folder/lease"
fi
if [ -z "$born" ]; then
    tell_uptime
    born=$hundredths
fi
tell_hundredths "$pause"
step=$hundredths
# In a container, and where the host is the machine, this is root, and the folder is not.
pipe=$folder/pause
[ "$end" = processes ] || pipe=${folder%/*}/pause
if [ ! -p /proc/$$/fd/3 ] && attempt "mkfifo \"\$pipe\" $without_locks"; then
    exec 3<>"$pipe"
    attempt "rm -f \"\$pipe\" $without_locks" || :
fi
round=0
paused=
limit=$first
[ -z "$renewed" ] || limit=$looks
while [ -z "$asked" ] && [ "$same" -lt "$limit" ]; do
    if attempt "now=\$(exec stat -c '%y %Y' \"\$folder/lease\" $without_locks)"; then
        if [ "$now" = "$seen" ]; then
            # Looks in a row without a pause between them are one.
            same=$((same + ${paused:-0}))
        else
            if [ -n "$seen" ]; then
                renewed=1
                limit=$looks
            fi
            same=0
            seen=$now
        fi
    # Without its lease a machine is given up.
    elif [ ! -e "$folder/lease" ]; then
        break
    fi
    if [ -n "$record" ] && [ "$((round % looks))" = 0 ]; then
        attempt "touch -c -- \"\$record\" \${share:+\"\$share\"} $without_locks" || :
    fi
    round=$((round + 1))
    nap=$pause
    if [ "$life" -gt 0 ]; then
        tell_left
        [ "$left" -gt 0 ] || break
        # The last pause is as long as what is left, in whole seconds: not every `sleep` knows others.
        [ "$left" -ge "$step" ] || [ "$step" -le 100 ] || nap=$(((left + 99) / 100))
    fi
    doze "$nap"
    # The shorter pause is the last one.
    [ -z "$paused" ] || waited=$((waited + step))
done
asked=1
case $end in
    processes)
        until attempt "end_machine \"\$mark\" \"\$folder\" $without_locks"; do
            # They wait for a disk or a driver, or no process can be started. What they hold is nobody else's until they are gone.
            doze 1
        done
        ;;
    off)
        PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
        # The orderly ways first; one that was taken has a while to come to its end before another is.
        while :; do
            for way in 'systemctl poweroff --no-wall' 'shutdown -P now' 'poweroff' 'poweroff -f'; do
                if attempt "$way"; then
                    doze 60
                fi
            done
            doze 1
        done
        ;;
esac
trap - EXIT
exit 0
