# Runs one command of the client. Its standard input: a line with the number of bytes for the command's own and what is
# done at the end, a line of shell text that sets the variables and becomes the command, these bytes, and then nothing,
# until the client gives it up or is gone: that kills the command and its children, or, with `end`, is the end of its
# input and no more. Variables are in no command line this way. These lines are joined to one, without quotes of one
# kind and without exclamation marks: whatever shell the user has passes it on.
echo skyward-output;
echo skyward-output >&2;
IFS=" " read -r size at_end && IFS= read -r text || exit 125;
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
else
    ({ head -c "$size"; exec >/dev/null; watch; } <&3 2>/dev/null &) | (eval "$text") 3<&-;
fi
