# Where claims and machines are on this host. The lines before this one set: base slots.
#
# A claim has two locks, and the machine's keeper holds both. The record of the claim, `slot-N`, is a file in a folder that only this user can enter: its lock says that the machine
# lives. It is below the identity of the host, because several hosts may share a home. Where the host names no folder, the second lock keeps other users from the slot: an
# empty folder of this user in a sticky folder of root's, whose name has the slot, the user, and the accelerators. It is a folder because making one follows no link, and opening
# one as `NAME/.` can neither wait nor start a device, whatever another user puts there. What other users have there is never read, removed or changed.
#
# A process is most of what a question costs, on a host that carries many: what the shell can tell by itself it is asked for.
umask 077

fail() {
    echo "error: $1" >&2
    exit 1
}

for tool in flock setsid stat awk sha256sum; do
    command -v "$tool" >/dev/null || fail "this host has no \`$tool\`, which claims need"
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
        # Only root can change what these names stand for. Every user may write to it: who may write to more folders than others does not choose another one than they do.
        if [ -d "$room" ] && [ ! -L "$room" ] && [ -w "$room" ]; then
            case $(stat -c '%u %a' "$room") in "0 "[1357]??[2367]) break ;; esac
        fi
    done
    [ "$room" != none ] || fail "neither /run/lock nor /tmp is a sticky folder of root's that you may write to, which claims need: give the host a folder of its own"
fi

# Ids of machines may outlive a boot, processes do not; clones of a host may have its id, but not its name too.
for file in /etc/machine-id /sys/class/dmi/id/product_uuid; do
    identity=
    { read -r identity <"$file"; } 2>/dev/null || :
    case $identity in
        '' | *[!0-9A-Fa-f-]*) identity=none ;;
        *) break ;;
    esac
done
read -r node_name </proc/sys/kernel/hostname
read -r boot </proc/sys/kernel/random/boot_id
case $node_name$identity in */*) fail "the name of this host has a slash: $node_name" ;; esac
claims=$base/claims/$node_name.$identity

# Whether the folder of all this user's claims is there and nobody else's. One look at the name itself: what a link points to does not count, and nobody can replace what is this
# user's in a folder that is sticky, or that only this user or root may write to.
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

# Makes the folders, and takes the lock on all claims of this user, as descriptor 8.
enter() {
    if ! is_own "$base"; then
        mkdir -p "${base%/*}/"
        # It has its mode from the beginning.
        mkdir "$base" 2>/dev/null || :
        is_own "$base" || fail "the folder $base cannot be made"
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
        *[2367]) fail "machines cannot be kept in $base: the folder above it is every user's to write to, and not sticky" ;;
        # A group with the name of its user is taken for that user's own.
        *[2367]?)
            [ "${parent#* }" = "$group:$group" ] \
                || fail "machines cannot be kept in $base: the folder above it is for the group $group to write to, and not sticky"
            ;;
    esac
    [ -d "$claims" ] || mkdir -p "$claims"
    exec 8>>"$claims/all"
    flock -w 20 8 || fail "the claims of this host stay locked, or its file system ($(stat -f -c %T "$claims")) has no locks: $claims/all"
}

# Takes the lock on all claims of the host, as descriptor 5. Any user can keep it, so only what makes a claim waits for it, and not for long.
enter_room() {
    if [ -n "$room" ]; then
        exec 5<"$room/."
        flock -w 10 5 || fail "somebody keeps $room locked, in which users of this host claim slots"
    fi
}

is_own "$base" || :

# Whether this is the record of a claim: a file of this user's, and no link.
is_record() {
    [ -s "$1" ] && [ -f "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]
}

# Whether somebody holds the claim in this file. Those who look share their locks, so that none takes another for a holder.
held() {
    ! flock -s -n 7 7<"$1"
}

# Waits until nobody holds the claim in this file, for so many seconds.
released() {
    flock -s -w "$2" 7 7<"$1"
}

# Looks up what the record of a claim says about something: `said`.
look_up() {
    while read -r key said; do
        [ "$key" != "$2" ] || return 0
    done <"$1"
    said=
}

# Looks up the file that has the record of a machine: `file`.
look_up_machine() {
    for file in "$claims"/slot-*; do
        if is_record "$file"; then
            look_up "$file" machine
            [ "$said" != "$1" ] || return 0
        fi
    done
    file=
}

# The folder of a machine, which no record says.
folder_of() {
    hash=$(printf %s "$1" | sha256sum)
    [ "${#hash}" -ge 64 ] || fail "this host cannot hash the name of a machine"
    hash=${hash%"${hash#??????????}"}
    folder=$base/$hash
}

# Whether the lease of the machine with this record and folder was renewed a moment ago, as somebody does whose machine lives. Both times are of the same file system.
is_renewed() {
    look_up "$1" boot
    [ "$said" = "$boot" ] && [ -e "$2/lease" ] || return 1
    look_up_remaining "$1"
    [ "${remaining:-1}" -gt 0 ] || return 1
    look_up "$1" period
    : >"$claims/now"
    set -- "$said" $(stat -c %Y "$claims/now" "$2/lease" 2>/dev/null)
    [ "$#" = 3 ] || return 1
    # A clock that was set back does not let it live for ever.
    age=$(($2 - $3))
    [ "${age#-}" -le "$1" ]
}

# Looks up how long this host is up, in hundredths of a second: `uptime`, empty where that cannot be read.
look_up_uptime() {
    uptime=
    { read -r uptime rest </proc/uptime; } 2>/dev/null || :
    case $uptime in
        *[!0-9.]* | *.*.*) uptime= ;;
        # As a number of its own the fraction would be read as an octal one.
        [0-9]*.??) uptime=$((${uptime%.*} * 100 + 1${uptime#*.} - 100)) ;;
        *) uptime= ;;
    esac
}

# Looks up what is left of the life of the machine with this record, in hundredths of a second: `remaining`, empty where it has no end, or one that cannot be told.
look_up_remaining() {
    remaining=
    look_up "$1" ends
    if [ -n "$said" ]; then
        look_up_uptime
        remaining=${uptime:+$((said - uptime))}
    fi
}

# Looks up what other users have: `elsewhere`, a line for each, with the slot, the accelerators behind a dot, and the user. Fails where not all of it can be seen.
look_elsewhere() {
    elsewhere=
    [ -n "$room" ] || return 0
    # Nobody keeps anybody's name from being seen by many of their own. The room comes last, and says that nothing is missing.
    elsewhere=$(printf '%s\0' "$room"/skyward-slot-*.* "$room" | xargs -0 stat -c '%u %f %U %n' -- 2>/dev/null | while read -r owner kind name entry; do
        # A name of more than one line goes on without the path of the room.
        case $entry in
            "$room") echo whole ;;
            "$room"/*) ;;
            *) continue ;;
        esac
        rest=${entry#"$room/skyward-slot-"}
        # Nothing else is in a name that a claim has made, and nothing else is told to anybody.
        case $rest in *[!0-9.,]*) continue ;; esac
        slot=${rest%%.*}
        user=${rest#*.}
        given=.${user#"${user%%.*}"}
        user=${user%%.*}
        case $slot:$user in
            :* | *: | *[!0-9:]*) continue ;;
        esac
        if [ "$user" = "$me" ]; then
            # Whoever takes this user's name for a slot has the slot.
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
        *) fail "it cannot be seen what other users of this host have: $room" ;;
    esac
}

# Looks up who else has slot $1: `user`, and what they have of it: `given`.
look_up_user() {
    while read -r slot_of given user; do
        [ "$slot_of" != "$1" ] || return 0
    done <<EOF
$elsewhere
EOF
    user=
}

# Tells the record in a file, of the machine in a folder, and what is left of its life.
tell() {
    while read -r line; do
        printf 'skyward-%s\n' "$line"
    done <"$1"
    look_up_remaining "$1"
    [ -z "$remaining" ] || printf 'skyward-remaining %s\n' "$remaining"
    printf 'skyward-folder %s\nskyward-end\n' "$2"
}
