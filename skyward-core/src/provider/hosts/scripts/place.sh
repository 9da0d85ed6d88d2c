# Where claims and machines are on this host. The lines before this one set: base slots.
#
# A slot is claimed by the lock on its file, which the machine's keeper holds; what is in the file is the record of the machine that has, or last had, the slot, and a
# file without a record belongs to nobody. Each user has files of their own, and a slot is free when no user's file of it is locked. Who claims or looks holds the lock on `all`.
#
# A process is most of what a question costs, on a host that carries many: what the shell can tell by itself it is asked for.
umask 077
for tool in flock setsid stat awk; do
    command -v "$tool" >/dev/null || {
        echo "error: this host has no \`$tool\`, which claims need" >&2
        exit 1
    }
done
while read -r key real me rest; do
    [ "$key" != Uid: ] || break
done </proc/self/status
case $base in "~/"*) base=$HOME/${base#"~/"} ;; esac
: "${base:=${SKYWARD_RUNTIME_DIR:-}}"
if [ -n "$base" ]; then
    claims=$base/claims
    claims_mode=700
else
    base=/tmp/skyward-$me
    # For all users of this host.
    claims=/tmp/skyward-claims
    claims_mode=1777
    if [ -d /run/lock ] && [ -w /run/lock ] && [ -k /run/lock ]; then
        claims=/run/lock/skyward-claims
    fi
fi

# Makes the folders, and takes the lock on all claims, as descriptor 8.
enter() {
    [ -d "$base" ] || mkdir -p "$base"
    if [ -L "$base" ] || [ ! -O "$base" ]; then
        echo "error: machines cannot be kept in $base: it belongs to another user" >&2
        exit 1
    fi
    chmod 700 "$base"
    if [ ! -d "$claims" ]; then
        mkdir -p "$claims"
        chmod "$claims_mode" "$claims"
    fi
    for_all "$claims/all"
    exec 8<"$claims/all"
    flock -w 20 8 || {
        echo "error: the claims of this host stay locked: $claims/all" >&2
        exit 1
    }
}

# Makes a file that all users can read, if there is none.
for_all() {
    umask 022
    [ -e "$1" ] || : >>"$1"
    umask 077
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
    for file in "$claims"/slot-*."$me"; do
        if [ -s "$file" ]; then
            look_up "$file" machine
            [ "$said" != "$1" ] || return 0
        fi
    done
    file=
}

tell() {
    while read -r line; do
        printf 'skyward-%s\n' "$line"
    done <"$1"
    echo skyward-end
}
