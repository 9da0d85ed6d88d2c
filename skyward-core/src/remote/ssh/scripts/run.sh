# Runs one command of the client. Standard input consists of:
#
# 1. a line with the length in bytes of the command's own input, and what to do at the end, which
#    ends any other shell that reads it;
# 2. a line of shell text that sets the variables and becomes the command;
# 3. the command's input;
# 4. nothing more, until the client gives up the command or is gone. That kills the command and its
#    children, or with `end` only ends its input.
#
# So variables are on no command line. The lines of this script are joined to one, without single
# quotes and without exclamation marks, so that any shell of the user accepts it.
IFS=" " read -r word code size at_end || exit 125;
case "$word $code $size" in
    "exit 125 #"*) size=${size#?} ;;
    *) echo skyward-has-read >&2; exit 125 ;;
esac;
IFS= read -r text || exit 125;
echo skyward-output;
echo skyward-output >&2;
newline=${IFS#??};
exec 3<&0;
watch() {
    while IFS= read -r line; do :; done;
    if kill -0 $$; then kill -s KILL -- -$$; fi;
};
if [ "$size" -eq 0 ]; then
    watch <&3 >/dev/null 2>&1 &
    (eval "$text") </dev/null 3<&-;
elif [ "$at_end" = end ]; then
    (eval "$text");
elif [ "$at_end" = all ]; then
    exec 3<&-;
    eval "$text";
else
    ({ head -c "$size"; exec >/dev/null; watch; } <&3 2>/dev/null &) | (eval "$text") 3<&-;
fi
