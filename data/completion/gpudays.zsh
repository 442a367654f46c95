#compdef gpudays
# zsh completion of gpudays. The program itself knows what can follow; see its source,
# cmd_completion.c. In ~/.zshrc, after compinit: source <(gpudays completion zsh)
_gpudays() {
  local -a lines plain described
  local line kind
  lines=("${(@f)$(${~words[1]} completion words -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  kind=$lines[1]
  for line in "${(@)lines[2,-1]}"; do
    if [[ $line == *$'\t' ]]; then
      plain+=("${line%%$'\t'*}")
    elif [[ -n $line ]]; then
      described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    fi
  done
  (( $#described )) && _describe -t words gpudays described
  if [[ $kind == *open ]]; then
    compadd -S '' -- "${plain[@]}"
  else
    compadd -- "${plain[@]}"
  fi
  case $kind in
    files*) _files ;;
    folders*) _files -/ ;;
  esac
}
if [[ $funcstack[1] == _gpudays ]]; then
  _gpudays "$@"
else
  compdef _gpudays gpudays
fi
