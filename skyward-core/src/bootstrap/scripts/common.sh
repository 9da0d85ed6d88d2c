# Where things are on the machine. The lines before this one set: key digest interpreter apt.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
arch=$(uname -m)
cache=${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward}
env=$cache/envs/$key-$arch
worker=$cache/worker/$digest
python=${interpreter:-$env/bin/python}

# An interpreter that is used as it is may change below what was found out about it.
environment_ready() {
    [ -e "$env/.ready" ] && [ -x "$python" ] && { [ -z "$interpreter" ] || [ ! "$interpreter" -nt "$env/.ready" ]; }
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

# A virtual environment is closed; an interpreter that is used as it is keeps what the machine gives it.
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
