# Prints what is not ready yet, or becomes the agent. Earlier lines set: check_only.
need=
if [ -z "$check_only" ] && [ -e "$env/.content" ]; then
    # The agent inherits this lock, and nobody removes the environment that it uses.
    exec 8<"$env/.content"
    flock -s 8
fi
[ -z "$apt" ] || [ -z "$(packages_missing)" ] || need="$need packages"
if ! is_built || ! is_unpacked || ! { are_as_listed || are_unchanged "$env" "$worker"; }; then
    environment_ready || need="$need environment"
    worker_ready || need="$need worker"
fi
if [ -n "$need" ]; then
    echo "skyward-need$need"
    exit 75
fi
# Otherwise the agent creates it.
[ -z "$check_only" ] || mkdir -p "$folder/work"
printf 'skyward-python %s\nskyward-path %s\n' "$python" "$path"
[ -z "$check_only" ] || exit 0
unset PYTHONHOME
export PYTHONPATH="$path"
