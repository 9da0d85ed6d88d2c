# Where things are on the machine. The lines before this one set: key digest interpreter apt.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
arch=$(uname -m)
cache=${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward}
echo "skyward-cache $cache"
env=$cache/envs/$key-$arch
worker=$cache/worker/$digest
python=${interpreter:-$env/bin/python}

environment_ready() {
    [ -e "$env/.ready" ] && [ -x "$python" ] && { [ -z "$interpreter" ] || is_as_it_was; }
}

# An interpreter that is used as it is may change below what was found out about it. Whether it is newer than that says nothing: the clock may have been set.
is_as_it_was() {
    was=
    [ ! -e "$env/.interpreter" ] || read -r was <"$env/.interpreter"
    [ "$was" = "$(as_it_is)" ]
}

as_it_is() {
    stat -Lc '%Y %s %i' "$interpreter"
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
