# Keeps a machine for as long as its lease is renewed, and ends it when that stops. The lease is the file `lease` in the machine's folder: any change of its time is a
# renewal. What is counted is looks without a change, so that a clock that is set means nothing.
#
# Arguments: the machine's folder; the seconds between two looks; how many looks without a renewal end the machine; its mark; what to touch now and then, because it may lie
# where files are cleaned by age. The first process of a container needs no mark, because all others end with it. Whoever starts it may give it locks as descriptors 4, 6 and 9,
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
mark=${4:-}
record=${5:-}
share=${6:-}
seen=${SKYWARD_KEEPER_SEEN:-}
same=${SKYWARD_KEEPER_SAME:-0}
asked=${SKYWARD_KEEPER_ASKED:-}

trap 'asked=1' TERM INT
trap '' HUP
if [ -n "${BASH_EXECUTION_STRING:-}" ]; then
    # A signal ends `read` only so.
    set -o posix
    again() {
        export SKYWARD_KEEPER_SEEN="$seen" SKYWARD_KEEPER_SAME="$same" SKYWARD_KEEPER_ASKED="$asked"
        exec bash --norc --posix -c "$BASH_EXECUTION_STRING" keeper "$folder" "$pause" "$looks" "$mark" "$record" "$share"
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

umask 077
if [ -z "$seen$asked" ]; then
    [ -d "$folder" ] || eval "mkdir -p \"\$folder\" $without_locks"
    [ -e "$folder/lease" ] || : >"$folder/lease"
fi
# In a container this is root, and the folder is not.
pipe=$folder/pause
[ -n "$mark" ] || pipe=${folder%/*}/pause
if [ ! -p /proc/$$/fd/3 ] && attempt "mkfifo \"\$pipe\" $without_locks"; then
    exec 3<>"$pipe"
    attempt "rm -f \"\$pipe\" $without_locks" || :
fi
round=0
paused=
while [ -z "$asked" ] && [ "$same" -lt "$looks" ]; do
    if attempt "now=\$(exec stat -c '%y %Y' \"\$folder/lease\" $without_locks)"; then
        if [ "$now" = "$seen" ]; then
            # Looks in a row without a pause between them are one.
            same=$((same + ${paused:-0}))
        else
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
    doze "$pause"
done
asked=1
if [ -n "$mark" ]; then
    until attempt "end_machine \"\$mark\" \"\$folder\" $without_locks"; do
        # They wait for a disk or a driver, or no process can be started. What they hold is nobody else's until they are gone.
        doze 1
    done
fi
trap - EXIT
exit 0
