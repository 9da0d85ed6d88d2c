# Where things are on the machine. Earlier lines set: key digest interpreter apt.
# The machine's own variable SKYWARD_CACHE_MODE: `read`, where it can only read the cache that it
# shares with machines of other pools; `build`, on the builder of such a cache.
: "${SKYWARD_CACHE_MODE:=}"
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
arch=$(uname -m)

# Whether programs can be kept in a folder: it can be written to, and is not mounted noexec. The
# result is remembered.
holds_programs() {
    [ ! -e "$1/.holds-programs" ] || return 0
    (
        umask 077
        mkdir -p "$1" && printf '#!/bin/sh\n' >"$1/.try-$$" && chmod 700 "$1/.try-$$" && "$1/.try-$$"
        runs=$?
        rm -f "$1/.try-$$"
        [ "$runs" = 0 ] && : >"$1/.holds-programs"
    ) 2>/dev/null
}

# The KiB that are free where a folder is.
free_space() {
    set -- $(df -Pk "$1" 2>/dev/null | tail -n 1)
    echo "${4:-0}"
}

# Creates a folder in a place that is open to other users, and checks that it belongs to this user
# alone. It has its mode from the beginning, and one check of the name itself suffices. Where others
# could write, they may have put something there.
is_own() {
    mkdir -m 700 "$1" 2>/dev/null
    mode=$(stat -c '%u %f' "$1" 2>/dev/null)
    case $mode in
        "$(id -u) 4"*) [ $((0x${mode#* } & 0x12)) -eq 0 ] && chmod 700 "$1" ;;
        *) return 1 ;;
    esac
}

# The folder for shared results: the user's own, or another one where that cannot be used, cannot
# hold programs, or has no space. A choice is kept.
own_cache=${XDG_CACHE_HOME:-$HOME/.cache}
find_cache() {
    cache=${SKYWARD_CACHE_DIR:-$own_cache/skyward}
    [ -z "${SKYWARD_CACHE_DIR:-}" ] && [ ! -e "$cache/.holds-programs" ] || return 0
    other=/var/tmp/skyward-$(id -u)
    if [ -e "$other/.holds-programs" ] && is_own "$other"; then
        cache=$other
        return
    fi
    for least in 524288 0; do
        for cache in "$own_cache/skyward" "$other"; do
            if [ "$cache" = "$other" ] && ! is_own "$other"; then
                continue
            elif holds_programs "$cache"; then
                [ "$(free_space "$cache")" -lt "$least" ] || return 0
                rm -f "$cache/.holds-programs"
            fi
        done
    done
    cache=$own_cache/skyward
}

find_cache
echo "skyward-cache $cache"
env=$cache/envs/$key-$arch
worker=$cache/worker/$digest
python=${interpreter:-$env/bin/python}

environment_ready() {
    [ -e "$env/.ready" ] && [ -x "$python" ] && { [ -z "$interpreter" ] || is_as_it_was; }
}

# An interpreter that is used as it is may change after it was checked. Comparing its time with that
# of the check proves nothing: the clock may have been set.
is_as_it_was() {
    was=
    [ ! -e "$env/.interpreter" ] || read -r was <"$env/.interpreter"
    [ "$was" = "$(as_it_is)" ]
}

as_it_is() {
    case $SKYWARD_CACHE_MODE in
        # With some storage drivers, the same file has another inode number in each container. It
        # cannot be replaced without another image, which has another cache.
        read | build) stat -Lc '%Y %s' "$interpreter" ;;
        *) stat -Lc '%Y %s %i' "$interpreter" ;;
    esac
}

worker_ready() {
    [ -e "$worker/.ready-$key-$arch" ]
}

packages_missing() {
    for package in $apt; do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>&1) in
            installed) ;;
            *) printf ' %s' "$package" ;;
        esac
    done
}

# A virtual environment is isolated; an interpreter that is used as it is keeps the machine's
# PYTHONPATH.
if [ -z "$interpreter" ]; then
    path=$worker
else
    path=$worker:$env/site${PYTHONPATH:+:$PYTHONPATH}
fi

# Lets one process of this host at a time do what follows.
alone() {
    exec 9>"$1"
    flock -n 9 && return
    echo "another process is doing this; waiting for it"
    flock 9
}
