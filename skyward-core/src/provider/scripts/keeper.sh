# Keeps a machine for as long as its lease is renewed, and ends it when that stops. The lease is the file `lease` in the machine's folder: any change of its time is a
# renewal. What is counted is looks without a change, so that a clock that is set means nothing.
#
# Arguments: the machine's folder; the seconds between two looks; how many looks without a renewal end the machine; its mark. The first process of a container needs no
# mark, because all others end with it. Whoever starts it may give it descriptor 9 with a lock, which is held until nothing of the machine is left.

keep() {
    umask 077
    [ -d "$1" ] || mkdir -p "$1"
    [ -e "$1/lease" ] || : >"$1/lease"
    seen=
    same=0
    while [ -z "$asked" ] && [ "$same" -lt "$3" ]; do
        # Without its lease a machine is given up.
        now=$(stat -c '%y %Y' "$1/lease" 2>/dev/null) || break
        if [ "$now" = "$seen" ]; then
            same=$((same + 1))
        else
            same=0
            seen=$now
        fi
        # Marked, so that it does not outlive the machine when this process is killed.
        SKYWARD_MACHINE=$4 sleep "$2" &
        wait "$!" || :
    done
    kill "$!" 2>/dev/null || :
    [ -n "$4" ] || return 0
    until end_machine "$4" "$1"; do
        # They wait for a disk or a driver. What they hold is nobody else's until they are gone.
        sleep 1
    done
}

asked=
trap 'asked=1' TERM INT
trap '' HUP
# The programs that it starts do not hold the lock; the shells that it forks do.
keep "$1" "$2" "$3" "${4:-}" 9>&-
exit 0
