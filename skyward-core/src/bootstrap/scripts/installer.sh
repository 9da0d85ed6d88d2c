# uv and its settings, and the machine's own installer. Earlier lines set: uv_version certificates
# may_install lock_wait.
own_uv=$cache/uv/$uv_version-$arch/bin/uv

# Creates the folder for shared results, or prints why it cannot be used.
make_cache() {
    mkdir -p "$cache"
    if ! holds_programs "$cache"; then
        # The tools print why they cannot write.
        echo '#!/bin/sh' | cat >"$cache/.try"
        rm -f "$cache/.try"
        echo "error: programs cannot be run from $cache: its file system is mounted noexec" >&2
        exit 1
    fi
    if [ -d "$folder" ] && [ "$(free_space "$folder")" -lt 65536 ]; then
        echo "warning: $(($(free_space "$folder") / 1024)) MiB are free at $folder, which also holds the output of the workers"
    fi
}

# Begins an installation by apt-get, one at a time on this host. A machine that can only read the
# cache does not share its system, and uses its own folder for temporary files.
begin_apt() {
    scratch=$folder
    [ "$SKYWARD_CACHE_MODE" = read ] || {
        make_cache
        scratch=$cache
    }
    alone "$scratch/.apt"
    new=$(mktemp -d "$scratch/.apt-XXXXXX")
    trap 'tell_state; rm -rf "$new"' EXIT
}

# For the message of a failed step.
tell_state() {
    echo "skyward-clock $(date +%s)"
    echo "skyward-disk $(($(free_space "$cache") / 1024)) MiB free at $cache"
}

# Whether this uv is 0.7 or newer.
fits() {
    version=$("$1" --version 2>/dev/null) || return 1
    version=${version#uv }
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    case $major,$minor in
        *[!0-9,]* | ,* | *,) return 1 ;;
        0,*) [ "$minor" -ge 7 ] ;;
    esac
}

find_uv() {
    uv=$(command -v uv || true)
    [ -n "$uv" ] && fits "$uv" && return
    uv=$own_uv
    [ -x "$uv" ]
}

find_python3() {
    python3=$(command -v python3 || command -v python || true)
    [ -n "$python3" ] && "$python3" -c 'import sys; sys.exit(sys.version_info < (3, 4))' 2>/dev/null
}

# The settings of pip on this machine also apply to uv, where uv has none of its own.
use_settings_of_pip() {
    if [ -z "${SSL_CERT_FILE:-}" ]; then
        pip_setting cert
        for bundle in "${PIP_CERT:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" "$value"; do
            if [ -f "$bundle" ]; then
                export SSL_CERT_FILE="$bundle"
                break
            fi
        done
    fi
    index_of_pip
    index_of_pip=$value
    [ -z "$index_of_pip" ] || export UV_DEFAULT_INDEX="$index_of_pip"
    dropped=$(env | sed -n 's/^\(UV_[A-Z_]*\)=.*/\1/p' | grep -xF "$(printf '%s\n' $of_projects)" | tr '\n' ' ' || true)
    unset $of_projects PYTHONHOME
}

# The image's certificate authorities, in addition to those that the machine trusts.
trust_certificates() {
    [ -n "$certificates" ] || return 0
    for bundle in "${SSL_CERT_FILE:-}" "${PIP_CERT:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem /dev/null; do
        [ ! -f "$bundle" ] && [ "$bundle" != /dev/null ] || break
    done
    cat "$bundle" "$certificates" >"$certificates.all"
    export SSL_CERT_FILE="$certificates.all" PIP_CERT="$certificates.all"
}

# Where the user's own folder for uv's caches cannot be used, they go to the folder for shared
# results.
keep_downloads() {
    if [ "$SKYWARD_CACHE_MODE" = build ]; then
        # The environment's interpreter is used on machines that have only this cache, and cannot
        # write compiled files.
        export UV_PYTHON_INSTALL_DIR="$cache/pythons" UV_COMPILE_BYTECODE=1
    fi
    if (mkdir -p "$own_cache" && [ -w "$own_cache" ]) 2>/dev/null && [ "$cache" != "${other:-}" ]; then
        return
    fi
    export UV_CACHE_DIR="${UV_CACHE_DIR:-$cache/downloads}" UV_PYTHON_INSTALL_DIR="${UV_PYTHON_INSTALL_DIR:-$cache/pythons}"
}

# Prints why nothing can be installed by apt-get; nothing where it can.
why_not_apt() {
    if [ -z "$may_install" ]; then
        echo "nothing is installed into the client's own system"
    elif ! command -v apt-get >/dev/null; then
        echo "this machine has no apt-get"
    elif [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "the user $(id -un 2>/dev/null || id -u) is not root, and there is no sudo"
    elif [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        echo "the user $(id -un 2>/dev/null || id -u) is not root, and sudo wants a password"
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Runs apt-get once no other process holds its locks, such as the machine's own updates.
apt_get() {
    waited=0
    while ! try_apt_get "$@"; do
        if ! grep -qiE 'could not get lock|unable to lock|unable to acquire the dpkg' "$new/said"; then
            return 1
        fi
        holder=$(sed -n 's/.*held by process \([0-9]*\) (\([^)]*\)).*/process \1 (\2)/p' "$new/said" | head -n 1)
        if [ "$waited" -ge "$lock_wait" ]; then
            echo "error: apt is locked by ${holder:-another process}, and was for ${lock_wait}s" >&2
            exit 1
        fi
        [ "$((waited % 15))" != 0 ] || echo "apt is locked by ${holder:-another process}; waiting for it"
        sleep 1
        waited=$((waited + 1))
    done
}

# Passes its output on, and its errors also to a file. Daemons that it starts do not inherit the
# lock of this script.
try_apt_get() {
    : >"$new/status"
    {
        {
            as_root env PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l APT_LISTCHANGES_FRONTEND=none LC_ALL=C \
                apt-get -q -y -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o Acquire::Languages=none \
                -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold $trusted "$@" </dev/null 2>&1 >&3 9>&- || echo $? >"$new/status"
        } | tee "$new/said" >&2
    } 3>&1
    [ ! -s "$new/status" ]
}

# Installs Debian packages. Lists that cannot be updated, for instance of a mirror that is gone, may
# not matter.
apt_install() {
    trusted=
    [ -z "$certificates" ] || trusted="-o Acquire::https::CAInfo=$SSL_CERT_FILE -o APT::Sandbox::User=root"
    [ -n "$listed" ] || apt_get update || echo "not all package lists could be updated"
    listed=yes
    apt_get install --no-install-recommends "$@"
}

listed=
use_settings_of_pip
trust_certificates
keep_downloads
