# Keeps a machine while its lease is renewed, and ends it when that stops, or when its life is over.
# The lease is the file `lease` in the machine's folder: any change of its time is a renewal. Checks
# without a change are counted, so that neither a clock that is set nor a suspended host matters.
# The life is measured by the clock that begins with the host, which nobody can set, or by the
# pauses between the checks where that clock cannot be read.
#
# Arguments: the machine's folder; the seconds between two checks; how many checks without a renewal
# end the machine; how many before the first renewal; the machine's life from now on in hundredths
# of a second, 0 for no end; how the machine ends:
#     processes   kills all processes with its mark, and removes its folder
#     exit        exits: it is the first process of a container, so all others end too
#     off         powers the host off: it runs as root, and the host is the machine. A host that is
#                 still up SKYWARD_KEEPER_FORCED seconds later, 90 by default, is ended by force
# Then, for `processes` alone: the mark; files to touch regularly, because they may lie where a
# cleaner removes files by age. The starter may pass locks as descriptors 4, 6 and 9, which are held
# until nothing of the machine is left.
#
# A process that cannot be started, at a limit of processes, ends nothing and counts as no check. In
# dash and busybox that is an error, which `command eval` catches. bash exits, and its trap on EXIT
# replaces it with a new one that has the same id, locks and count. bash also waits without starting
# a process.

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
forced=${SKYWARD_KEEPER_FORCED:-90}

trap 'asked=1' TERM INT
trap '' HUP
if [ -n "${BASH_EXECUTION_STRING:-}" ]; then
    # Only then a signal ends `read`.
    set -o posix
    again() {
        export SKYWARD_KEEPER_SEEN="$seen" SKYWARD_KEEPER_SAME="$same" SKYWARD_KEEPER_ASKED="$asked"
        export SKYWARD_KEEPER_RENEWED="$renewed" SKYWARD_KEEPER_BORN="$born" SKYWARD_KEEPER_WAITED="$waited"
        exec bash --norc --posix -pc "$BASH_EXECUTION_STRING" keeper "$folder" "$pause" "$looks" "$first" "$life" "$end" "$mark" "$record" "$share"
    }
    trap again EXIT
fi

# Programs that it starts do not hold the locks; the shells that it forks do. So whoever holds them
# has this script's command line, by which `end.sh` recognises those that do not end.
without_locks='3>&- 4>&- 6>&- 9>&-'

# Runs a command that needs processes.
attempt() {
    command eval "$1" 2>/dev/null
}

# Waits for so many seconds, or for a signal; `paused` says whether it could.
doze() {
    paused=1
    if [ -n "${BASH_VERSION:-}" ] && [ -p /proc/self/fd/3 ]; then
        read -r -t "$1" nothing <&3 || :
    # Marked, so that it does not outlive the machine when this process is killed. In the
    # foreground: dash may wait for ever for a background child once a fork has failed.
    elif ! attempt "SKYWARD_MACHINE=\$mark sleep $1 $without_locks" && [ -z "$asked" ]; then
        paused=
        # Not every shell can.
        attempt 'read -r -t 1 nothing <&3' || :
    fi
}

# Converts seconds, with or without a fraction: `hundredths`, empty where it is no number.
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

# How long the host is up: `hundredths`, empty where unknown.
tell_uptime() {
    up=
    { read -r up rest </proc/uptime; } 2>/dev/null || up=
    tell_hundredths "$up"
}

# The rest of the machine's life: `left`. No counter is faster than time, so the largest is right.
tell_left() {
    tell_uptime
    left=$waited
    if [ -n "$born" ] && [ -n "$hundredths" ] && [ "$((hundredths - born))" -gt "$left" ]; then
        left=$((hundredths - born))
    fi
    left=$((life - left))
}

# Ends a host whose orderly end hangs: systemd waits up to 30 minutes for a service that does not
# stop. systemd kills the keeper when that end begins, and this process at its last step.
force_off() {
    # Not ignored: that step waits for processes that ignore them.
    trap - TERM INT
    asked='' paused='' namespace=''
    attempt 'namespace=$(exec stat -Lc %i /proc/self/ns/pid)' || :
    while [ -z "$paused" ]; do
        doze "$forced"
    done
    while :; do
        # A program may wait for ever for a disk or a share that does not answer.
        attempt 'poweroff -f -f -n &' || :
        doze 5
        # Without a program. Only in the first namespace: elsewhere this is the file of another host.
        [ "$namespace" != 4026531836 ] || attempt 'echo o >/proc/sysrq-trigger' || :
    done
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
            # Checks in a row without a pause between them count as one.
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
        # The last pause is the rest of the life in whole seconds: not every `sleep` takes
        # fractions.
        [ "$left" -ge "$step" ] || [ "$step" -le 100 ] || nap=$(((left + 99) / 100))
    fi
    doze "$nap"
    # A shorter pause is the last one.
    [ -z "$paused" ] || waited=$((waited + step))
done
asked=1
case $end in
    processes)
        until attempt "end_machine \"\$mark\" \"\$folder\" $without_locks"; do
            # They wait for a disk or a driver, or no process can be started. What they hold must
            # not be given to others until they are gone.
            doze 1
        done
        ;;
    off)
        PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
        attempt 'force_off &' || :
        # The orderly ways; one that worked gets a while before the next is tried.
        while :; do
            for way in 'systemctl poweroff --no-wall' 'shutdown -P now' 'poweroff'; do
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
