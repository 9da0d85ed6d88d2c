# Precedes a plugin's command.
unset PYTHONHOME
export PYTHONPATH="$path"
export PATH="${python%/*}:$PATH"
cd "$folder/work"
