# Where claims and machines are on this host. Earlier lines set: base slots expected.
#
# A claim has two locks, and the machine's keeper holds both.
#
# 1. The record of the claim, `slot-N`, is a file in a folder that only this user can enter. Its
#    lock says that the machine lives. It is below the host's boot, because several hosts may share
#    a home, and no process outlives a boot.
# 2. Where the host names no folder, the second lock keeps other users from the slot: an empty
#    folder of this user in a sticky folder of root's, named after the slot, the user and the
#    accelerators. It is a folder because creating one follows no link, and opening one as `NAME/.`
#    can neither block nor start a device, whatever another user puts there. What other users have
#    there is never read, removed or changed.
#
# On a host that runs many machines, starting processes is most of the cost of a command: use the
# shell's own means where they suffice.
umask 077
# For words, numbers and lengths as the client expects them.
export LC_ALL=C

fail() {
    echo "error: $1" >&2
    exit 1
}

for tool in flock setsid stat awk sha256sum; do
    command -v "$tool" >/dev/null || fail "this host has no program \`$tool\`, which claims need"
done
while read -r key real me rest; do
    [ "$key" != Uid: ] || break
done </proc/self/status
case $base in "~/"*) base=$HOME/${base#"~/"} ;; esac
: "${base:=${SKYWARD_RUNTIME_DIR:-}}"
room=
if [ -z "$base" ]; then
    base=/tmp/skyward-$me
    for room in /run/lock /tmp none; do
        # Only root can change what these names stand for. Each must be writable for every user: a
        # user with more rights must not choose another folder than the others.
        if [ -d "$room" ] && [ ! -L "$room" ] && [ -w "$room" ]; then
            case $(stat -c '%u %a' "$room") in "0 "[1357]??[2367]) break ;; esac
        fi
    done
    [ "$room" != none ] || fail "claims need a sticky folder of root's that you may write to, but neither /run/lock nor /tmp is one: give the host a folder of its own"
fi

# What identifies this host and what its processes can see: neither a name nor an address.
machine_id=
for file in /etc/machine-id /var/lib/dbus/machine-id; do
    { read -r machine_id <"$file"; } 2>/dev/null || :
    # systemd writes `uninitialized` where the machine has no id yet.
    case $machine_id in *[!0-9a-f]*) machine_id= ;; esac
    [ "${#machine_id}" != 32 ] || break
    machine_id=
done
boot=
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null || :
read -r node_name </proc/sys/kernel/hostname
case $node_name in */*) node_name=none ;; esac
# The folder without links, and the namespace of process ids.
space=$(readlink -m -- "$base" /proc/self/ns/pid) || space=$base
at=${space%%
*}
space=${space##*[!0-9]pid:\[}
space=${space%]}
case $space in '' | *[!0-9]*) space=0 ;; esac
life=${boot:-none}.$space
# A host without an id of its own is identified by its boot.
host="${machine_id:-$life} $me $at"
printf 'skyward-host %s %s\n' "$life" "$host"
[ -z "$expected" ] || [ "$expected" = "$host" ] || exit 76

# A boot is the life of all processes that see each other. Clones of a host have boots of their own.
claims=$base/claims/$life
# Where older versions of this library keep their claims.
before=$base/claims/$node_name.${machine_id:-none}

# Whether the folder of all this user's claims exists and belongs to nobody else. It checks the name
# itself, so a link does not count. Nobody can replace what belongs to this user in a folder that is
# sticky, or that only this user or root may write to.
is_own() {
    found=$(stat -c '%u %f %U' -- "$1" 2>/dev/null) || return 1
    set -- "$1" $found
    case $2:$3 in
        "$me:41c0") ;;
        "$me":4???) chmod 700 "$1" ;;
        "$me":*) fail "machines cannot be kept in $1: it is not a folder, but a link or a file" ;;
        *) fail "machines cannot be kept in $1: it belongs to the user $4" ;;
    esac
}

# Creates the folders, and takes the lock on all claims of this user, as descriptor 8.
enter() {
    if ! is_own "$base"; then
        mkdir -p "${base%/*}/"
        # It has its mode from the beginning.
        mkdir "$base" 2>/dev/null || :
        is_own "$base" || fail "the folder $base cannot be created"
    fi
    parent=$(stat -Lc '%u %a %U:%G' "${base%/*}/.")
    case $parent in
        0\ * | "$me "*) ;;
        *) fail "machines cannot be kept in $base: the folder above it belongs to another user" ;;
    esac
    parent=${parent#* }
    group=${parent##*:}
    case ${parent% *} in
        [1357]???) ;;
        *[2367]) fail "machines cannot be kept in $base: every user may write to the folder above it, which is not sticky" ;;
        # A group with the name of its user counts as that user's own.
        *[2367]?)
            [ "${parent#* }" = "$group:$group" ] \
                || fail "machines cannot be kept in $base: the group $group may write to the folder above it, which is not sticky"
            ;;
    esac
    [ -d "$claims" ] || mkdir -p "$claims"
    exec 8>>"$claims/all"
    flock -w 20 8 || fail "the claims of this host remain locked, or its file system ($(stat -f -c %T "$claims")) has no locks: $claims/all"
}

# Takes the lock on all claims of the host, as descriptor 5. Any user can hold it, so only the
# creation of a claim waits for it, and not for long.
enter_room() {
    if [ -n "$room" ]; then
        exec 5<"$room/."
        flock -w 10 5 || fail "somebody keeps $room locked, in which users of this host claim slots"
    fi
}

is_own "$base" || :

# Whether this is the record of a claim: a file of this user, and no link.
is_record() {
    [ -s "$1" ] && [ -f "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]
}

# Whether somebody holds the claim in this file. Checks take shared locks, so that they do not count
# as holders.
held() {
    ! flock -s -n 7 7<"$1"
}

# Waits for at most $2 seconds until nobody holds the claim in file $1.
released() {
    flock -s -w "$2" 7 7<"$1"
}

# Looks up a value in the record of a claim: `said`.
look_up() {
    while read -r key said; do
        [ "$key" != "$2" ] || return 0
    done <"$1"
    said=
}

# Looks up the file with the record of a machine: `file`.
look_up_machine() {
    for file in "$claims"/slot-* "$before"/slot-*; do
        if is_record "$file"; then
            look_up "$file" machine
            [ "$said" != "$1" ] || return 0
        fi
    done
    file=
}

# Looks up the file of slot $1: `file`, with a record if the slot has one.
look_up_slot() {
    file=$before/slot-$1
    is_record "$file" || file=$claims/slot-$1
}

# The folder of a machine, which no record contains.
folder_of() {
    hash=$(printf %s "$1" | sha256sum)
    [ "${#hash}" -ge 64 ] || fail "this host cannot hash the name of a machine"
    hash=${hash%"${hash#??????????}"}
    folder=$base/$hash
}

# Whether the lease of the machine with this record and folder was renewed a moment ago, so that the
# machine lives without its keeper.
is_renewed() {
    [ -e "$2/lease" ] || return 1
    look_up "$1" born
    if [ -z "$said" ]; then
        # An older version renews leases by a clock that can be set, so only `reap` ends its
        # machines before the host's next boot.
        look_up "$1" boot
        [ "$said" = "$boot" ]
        return
    fi
    look_up_remaining "$1"
    [ "${remaining:-1}" -gt 0 ] || return 1
    look_up_renewal "$2"
    [ -n "$renewal" ] || return 1
    look_up "$1" period
    [ "$((uptime - renewal))" -le "$((said * 100))" ]
}

# Looks up when the lease of the machine in folder $1 was renewed last: `renewal`, in hundredths of a
# second since the boot, empty where nobody has renewed it. A renewal sets the time of the file to
# the host's uptime, because any other clock can be set. Also looks up `uptime`.
look_up_renewal() {
    look_up_uptime
    to_hundredths "$(stat -c %.2Y -- "$1/lease" 2>/dev/null)"
    renewal=$hundredths
    # A time in the future is no renewal: that clock cannot be set.
    if [ "${renewal:-0}" = 0 ] || [ "$renewal" -gt "$((${uptime:-0} + 100))" ]; then
        renewal=
    fi
}

# Converts seconds with two digits behind the point: `hundredths`, empty where it is no such number.
to_hundredths() {
    case $1 in
        *[!0-9.]* | *.*.*) hundredths= ;;
        # As a number of its own the fraction would be read as an octal one.
        [0-9]*.??) hundredths=$((${1%.*} * 100 + 1${1#*.} - 100)) ;;
        *) hundredths= ;;
    esac
}

# Looks up how long this host is up, in hundredths of a second: `uptime`, empty where unknown.
look_up_uptime() {
    uptime=
    { read -r uptime rest </proc/uptime; } 2>/dev/null || :
    to_hundredths "$uptime"
    uptime=$hundredths
}

# Looks up the rest of the life of the machine with this record, in hundredths of a second:
# `remaining`, empty where it has no end or the end is unknown.
look_up_remaining() {
    remaining=
    look_up "$1" ends
    if [ -n "$said" ]; then
        look_up_uptime
        remaining=${uptime:+$((said - uptime))}
    fi
}

# Looks up what other users have: `elsewhere`, a line for each, with the slot, the accelerators
# behind a dot, and the user. Fails where not all of it is visible.
look_elsewhere() {
    elsewhere=
    [ -n "$room" ] || return 0
    # Many names of one user must not hide another's. The room comes last, to show that nothing is
    # missing.
    elsewhere=$(printf '%s\0' "$room"/skyward-slot-*.* "$room" | xargs -0 stat -c '%u %f %U %n' -- 2>/dev/null | while read -r owner kind name entry; do
        # A name of more than one line continues without the path of the room.
        case $entry in
            "$room") echo whole ;;
            "$room"/*) ;;
            *) continue ;;
        esac
        rest=${entry#"$room/skyward-slot-"}
        # The name of a claim has no other characters, and other names are reported to nobody.
        case $rest in *[!0-9.,]*) continue ;; esac
        slot=${rest%%.*}
        user=${rest#*.}
        given=.${user#"${user%%.*}"}
        user=${user%%.*}
        case $slot:$user in
            :* | *: | *[!0-9:]*) continue ;;
        esac
        if [ "$user" = "$me" ]; then
            # Whoever uses this user's name for a slot has the slot.
            [ "$owner" = "$me" ] || echo "$slot . $name"
        elif [ "$user" = "$owner" ]; then
            case $kind in
                4???) ! held "$entry/." || echo "$slot $given $name" ;;
            esac
        fi
    done)
    case $elsewhere in
        whole) elsewhere= ;;
        *"
whole") elsewhere=${elsewhere%"
whole"} ;;
        *) fail "cannot see what other users of this host have: $room" ;;
    esac
}

# Looks up who else has slot $1: `user`, and the accelerators: `given`.
look_up_user() {
    while read -r slot_of given user; do
        [ "$slot_of" != "$1" ] || return 0
    done <<EOF
$elsewhere
EOF
    user=
}

# Prints the record in a file, for the machine in a folder, and the rest of its life.
tell() {
    while read -r line; do
        printf 'skyward-%s\n' "$line"
    done <"$1"
    look_up_remaining "$1"
    [ -z "$remaining" ] || printf 'skyward-remaining %s\n' "$remaining"
    printf 'skyward-folder %s\nskyward-end\n' "$2"
}
