# Runs the shell text in the first line of standard input; the rest of the input is its own.
echo skyward-output;
newline=${IFS#??};
IFS= read -r text && eval "$text"
