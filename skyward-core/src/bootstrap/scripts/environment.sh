# Builds the environment, once for all users of the same content. Earlier lines set: python_request
# project extras has_settings has_default_index check index lock.
# It is built in its final place, because its files contain their own path. `.ready` is written
# last, and without it nobody uses the environment.
find_uv || uv=
make_cache
mkdir -p "$cache/envs"
build=$cache/envs/.build-$key-$arch
alone "$cache/envs/.lock-$key-$arch"
find_results
if environment_ready; then
    echo "the environment exists: $env"
    exit
fi
if [ -e "$env/.ready" ]; then
    if [ -e "$env/.content" ] && ! are_unchanged "$env"; then
        echo "files of the environment were changed after it was built, so it is built anew: $(changed_files "$env")"
    fi
    begin_next envs "$key-$arch"
fi
# Older ones are removed, unless an agent uses them.
for older in "$cache/envs/$key-$arch" "$cache/envs/$key-$arch".*; do
    [ "$older" != "$env" ] && [ -e "$older/.content" ] || continue
    ! (flock -n 8) 8<>"$older/.content" || rm -rf "$older"
done
rm -rf "$env" "$build" "$cache"/worker/*/.ready-"$key-$arch"
mkdir -p "$build"
cd "$build"
trap 'tell_state; cd /; rm -rf "$build"' EXIT
# Programs that are built here may have to run, which the folder for temporary files may forbid.
mkdir "$build/tmp"
export TMPDIR="$build/tmp"
# Copies, so that a changed file is a file of this environment alone, and not of uv's cache.
export UV_LINK_MODE=copy
echo >"$build/tmp/one"
! cp --reflink=always "$build/tmp/one" "$build/tmp/two" 2>/dev/null || UV_LINK_MODE=clone
# A shell's own printf may not report why it cannot write.
printf '%s' "$project" | cat >pyproject.toml
[ -z "$lock" ] || tar -x -o -f -

# The index of pip applies where nothing else names one.
[ -z "$has_default_index" ] || [ -z "$index_of_pip" ] || unset UV_DEFAULT_INDEX

# uv only warns about settings that it cannot read, and then applies none of them.
if [ -n "$uv" ]; then
    [ -z "$dropped" ] || echo "variables for one project do not apply: $dropped"
    for name in ${UV_NO_CONFIG:+UV_NO_CONFIG} ${UV_CONFIG_FILE:+UV_CONFIG_FILE}; do
        [ -z "$has_settings" ] || {
            echo "error: uv ignores the settings of the image, because $name is set" >&2
            exit 1
        }
    done
    "$uv" cache dir >/dev/null 2>read.txt || true
    if grep -q 'during settings discovery' read.txt; then
        cat read.txt >&2
        echo "error: $("$uv" --version) cannot read the settings of the image" >&2
        exit 1
    fi
fi

# The shims of pyenv respond to every version that pyenv has, but refuse most. Look for the
# interpreters behind them.
look_behind_shims() {
    root=${PYENV_ROOT:-$HOME/.pyenv}
    [ -d "$root/versions" ] || return 0
    first=
    case :$PATH: in
        *:"$root/shims":*)
            for version in $(printf %s "${PYENV_VERSION:-$(cat "$root/version" 2>/dev/null)}" | tr ':' ' '); do
                first=$first$root/versions/$version/bin:
            done
            ;;
    esac
    plain=$(printf %s "$PATH" | tr ':' '\n' | grep -vxF "$root/shims" | tr '\n' ':')
    PATH=$first${plain%:}
    for folder in "$root"/versions/*/bin; do
        PATH=$PATH:$folder
    done
}

install() {
    "$uv" pip install --python "$python" ${index:+--default-index "$index"} "$@"
}

# A package that is bound to an index and is only a dependency of another package must be requested
# by name, or it would come from any index.
bound_extras() {
    [ -n "$extras" ] || return 0
    "$uv" pip compile --quiet --no-header --no-annotate --python "$python" ${index:+--default-index "$index"} pyproject.toml "$@" >all.txt
    for extra in $extras; do
        ! grep -qi "^${extra#*=}==" all.txt || printf -- '--extra %s ' "${extra%%=*}"
    done
}

# Whether the interpreter has the requested packages, checked without the network and without
# changes.
has() {
    "$uv" pip install --python "$interpreter" --dry-run --offline --break-system-packages "$@" >checked.txt 2>&1 || {
        cat checked.txt >&2
        exit 1
    }
    if ! grep -q 'Would make no changes' checked.txt; then
        cat checked.txt >&2
        echo "error: the interpreter does not have all that the image asks for" >&2
        exit 1
    fi
}

if [ -n "$interpreter" ]; then
    if [ ! -x "$interpreter" ]; then
        echo "error: there is no interpreter at $interpreter" >&2
        exit 1
    fi
    "$interpreter" -c 'import sys; print("skyward-version", "%d.%d.%d" % sys.version_info[:3]); sys.exit(sys.version_info < (3, 10) and "error: it is too old: the worker needs Python 3.10 or newer")'
    mkdir -p "$env/site"
    as_it_is >"$env/.interpreter"
    if ! "$interpreter" -c 'import msgspec' 2>/dev/null; then
        install --target "$env/site" $worker_needs
    fi
    if [ -n "$check" ]; then
        echo "checking the packages of $interpreter"
        printf '%s' "$check" | cat >check.txt
        has -r check.txt
        [ -z "$lock" ] || has -r "$lock"
    fi
else
    look_behind_shims
    "$uv" venv --no-project --python "$python_request" "$env" || {
        status=$?
        "$uv" python list --only-installed 2>/dev/null | sed 's/^/skyward-found /'
        echo "skyward-no-apt $(why_not_apt)"
        [ ! -e /etc/os-release ] || sed -n 's/^ID=/skyward-system /p' /etc/os-release | tr -d '"'
        exit $status
    }
    case $lock in
        '')
            install -r pyproject.toml $(bound_extras)
            ;;
        pylock*)
            install -r "$lock"
            "$uv" pip freeze --python "$python" >locked.txt
            install -r pyproject.toml -c locked.txt $(bound_extras -c locked.txt)
            ;;
        *)
            install -r pyproject.toml -r "$lock" $(bound_extras "$lock")
            ;;
    esac
fi
if [ -n "$uv" ]; then
    "$uv" pip freeze --python "$python" >"$env/.ready-new"
else
    : >"$env/.ready-new"
fi
record "$env"
mv "$env/.ready-new" "$env/.ready"
