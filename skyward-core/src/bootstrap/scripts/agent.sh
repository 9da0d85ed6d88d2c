# Prints what is not ready yet, or becomes the agent. Earlier lines set: folder check_only.
need=
[ -z "$apt" ] || [ -z "$(packages_missing)" ] || need="$need packages"
environment_ready || need="$need environment"
worker_ready || need="$need worker"
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
