# Where things are on the machine. Earlier lines set: key digest interpreter apt arch folder writable.
# The machine's own variable SKYWARD_CACHE_MODE: `read`, where it can only read the cache that it
# shares with machines of other pools; `build`, on the builder of such a cache.
: "${SKYWARD_CACHE_MODE:=}"
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
[ -n "$arch" ] || arch=$(uname -m)

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

# Variables with which a user tells uv about one project. An environment is made from the image alone.
of_projects='UV_PROJECT UV_WORKING_DIR UV_WORKING_DIRECTORY UV_NO_PROJECT UV_PROJECT_ENVIRONMENT UV_ENV_FILE
    UV_PYTHON UV_SYSTEM_PYTHON UV_BREAK_SYSTEM_PACKAGES UV_TARGET UV_PREFIX UV_NO_SOURCES UV_NO_SOURCES_PACKAGE
    UV_CONSTRAINT UV_OVERRIDE UV_EXCLUDE UV_BUILD_CONSTRAINT UV_NO_EDITABLE
    UV_VENV_SEED UV_VENV_CLEAR UV_VENV_RELOCATABLE'
# Those with which uv gets the same packages in another way, or prints something else.
of_access='UV_INDEX_.*_USERNAME|UV_INDEX_.*_PASSWORD|UV_KEYRING_PROVIDER|UV_CREDENTIALS_DIR|UV_PUBLISH_.*
    |UV_NATIVE_TLS|UV_SYSTEM_CERTS|UV_INSECURE_HOST|UV_HTTP_.*|UV_REQUEST_TIMEOUT|UV_OFFLINE|UV_NO_CACHE|UV_CACHE_DIR
    |UV_CONCURRENT_.*|UV_LOCK_TIMEOUT|UV_LINK_MODE|UV_COMPILE_BYTECODE|UV_PYTHON_DOWNLOADS|UV_PYTHON_INSTALL_.*
    |UV_PYTHON_CACHE_DIR|UV_PYTHON_BIN_DIR|UV_TOOL_.*|UV_STACK_SIZE|UV_NO_PROGRESS|UV_NO_WRAP|UV_LOG_CONTEXT
    |UV_RUN_RECURSION_DEPTH'

# Runs a command with each of uv's own files of settings, of this user and of this machine. Files of
# projects, in the folders above, are none of them.
with_settings_of_uv() {
    for file in "${UV_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-$HOME/.config}/uv/uv.toml" /etc/xdg/uv/uv.toml /etc/uv/uv.toml; do
        [ ! -f "$file" ] || "$@" "$file"
    done
}

# Whether uv has such files with anything in them.
has_settings_of_uv() {
    value=
    with_settings_of_uv note
    [ -n "$value" ]
}

note() {
    [ ! -s "$1" ] || value=$1
}

# Sets `value` to a setting of pip from one of its files, for all commands or for installations. As for
# pip, the null device as the user's file means that no file counts.
pip_setting() {
    value=
    [ "${PIP_CONFIG_FILE:-}" != /dev/null ] || return 0
    for section in install global; do
        for file in "${PIP_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf" /etc/xdg/pip/pip.conf /etc/pip.conf; do
            [ -r "$file" ] && [ ! -d "$file" ] || continue
            value_in "$file" "$section" "$1"
            [ -z "$value" ] || return 0
        done
    done
}

# Sets `value` to that of a name in a section of a file of settings; the name is a pattern.
value_in() {
    value= section_of_line=
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
            \[*\]*)
                section_of_line=${line#\[}
                section_of_line=${section_of_line%%\]*}
                ;;
            $3*)
                rest=${line#$3}
                rest=${rest#"${rest%%[! ]*}"}
                case $section_of_line,$rest in
                    "$2,"[=:]*)
                        value=${rest#?}
                        value=${value#"${value%%[! ]*}"}
                        return
                        ;;
                esac
                ;;
        esac
    done <"$1"
}

# Sets `value` to the index of pip on this machine, which also applies to uv where uv has no settings
# of its own.
index_of_pip() {
    if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ] && ! has_settings_of_uv; then
        value=${PIP_INDEX_URL:-}
        [ -n "$value" ] || pip_setting 'index[-_]url'
    else
        value=
    fi
}

# Whether this machine may have settings. Each process that a start does without saves a millisecond, so
# none is started where there is nothing to read.
may_have_settings() {
    case $(export -p) in *UV_*) return 0 ;; esac
    index_of_pip
    [ -n "$value" ] || has_settings_of_uv
}

# The settings of this machine that decide which packages are installed, without passwords.
settings() {
    unset $of_projects
    {
        env | grep '^UV_' | grep -vE "^($(printf %s "$of_access" | tr -d ' \n'))=" | LC_ALL=C sort
        with_settings_of_uv cat
        index_of_pip
        printf '%s\n' "$value"
    } | sed -e 's#://[^/@ ]*@#://#g' -e '/^$/d'
}

# The image's environment is another one under other settings.
if [ -z "$interpreter" ] && may_have_settings; then
    settings=$(settings)
    [ -z "$settings" ] || key=$key-$(printf %s "$settings" | sha256sum | head -c 12)
fi
find_cache
if [ -n "$writable" ]; then
    # What the pool may change is its own.
    cache=$folder/cache SKYWARD_CACHE_MODE=
fi
echo "skyward-cache $cache"

# Sets `result` to the newest one of this kind and name. A result that pools share is never changed:
# where a payload has changed its files, workers may still use them, and the next result is made beside
# it, in a folder with a number.
newest() {
    number=
    [ ! -e "$cache/$1/.newest-$2" ] || read -r number <"$cache/$1/.newest-$2"
    result=$cache/$1/$2${number:+.$number}
}

# A virtual environment is isolated; an interpreter that is used as it is keeps the machine's
# PYTHONPATH.
find_results() {
    newest envs "$key-$arch"
    env=$result
    newest worker "$digest"
    worker=$result
    python=${interpreter:-$env/bin/python}
    path=$worker
    [ -z "$interpreter" ] || path=$worker:$env/site${PYTHONPATH:+:$PYTHONPATH}
}
find_results

# The files of these results, each with its mode, its size and its last change, which nobody can set.
# What Python compiles is compared with its source by Python. Only the `find` of GNU prints all this
# by itself.
content_of() {
    for result; do
        set -- "$@" "${result#"$cache/"}"
        shift
    done
    cd "$cache"
    set -- "$@" -name __pycache__ -prune -o ! -type d ! -name '.ready*' ! -name '.content*'
    LC_ALL=C find "$@" -printf '%y%m %s %C@ =%p\n' 2>/dev/null || TZ=UTC0 find "$@" -exec stat -c '%f %s %z =%n' {} +
}

# What is recorded of these results and is not there, what is there and is not recorded, and `end`.
changes_of() {
    { content_of "$@" && echo end; } | {
        for result; do
            set -- "$@" "$result/.content"
            shift
        done
        LC_ALL=C exec sort - "$@"
    } | LC_ALL=C uniq -u
}

# Whether a change of these results counts. A machine that can only read the cache changes nothing
# there, and a pool may change what is its own.
may_be_changed() {
    [ -z "$SKYWARD_CACHE_MODE$writable" ]
}

# Whether these results are as they were made.
are_unchanged() {
    may_be_changed || return 0
    for result; do
        [ -e "$result/.content" ] || return 1
    done
    [ "$(changes_of "$@")" = end ]
}

is_built() {
    [ -e "$env/.ready" ] && [ -x "$python" ] && { [ -z "$interpreter" ] || is_as_it_was; }
}

environment_ready() {
    is_built && are_unchanged "$env"
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

# Whether the worker package was made ready for this environment. The file lists what both had then.
is_unpacked() {
    [ -e "$worker/.ready-$key-$arch" ]
}

# Whether both are as they are listed there. The answer yes is that of `are_unchanged`, with half the
# processes; no says nothing, because the order may be another one.
are_as_listed() {
    list=$worker/.ready-$key-$arch
    may_be_changed && [ -s "$list" ] && content_of "$env" "$worker" | cmp -s - "$list" 2>/dev/null
}

worker_ready() {
    is_unpacked && are_unchanged "$worker"
}

packages_missing() {
    for package in $apt; do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>&1) in
            installed) ;;
            *) printf ' %s' "$package" ;;
        esac
    done
}

# Lets one process of this host at a time do what follows.
alone() {
    exec 9>"$1"
    flock -n 9 && return
    echo "another process is doing this; waiting for it"
    flock 9
}
