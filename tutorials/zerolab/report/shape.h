// Whether a JSON document has the members and types that its reader needs: a file may be damaged,
// or edited by hand.
#pragma once

#include <string>

namespace zl::cli {

// Both texts are valid JSON. `shape` has the form of the document, with these words for its values:
// text, integer, boolean, number (also null or a boolean), object; "#NAME": an index of the list
// NAME of the closest object around it, "#NAME?": or -1. [x] is a list of x, [x, "@NAME"] one as
// long as the list NAME, another list a tuple. In an object a member "NAME?" may be null or
// missing, and "*" is every other member. Throws InputError: "BEGIN: /about is not an object".
void require_shape(const std::string& json, const std::string& shape, const std::string& begin);

}  // namespace zl::cli
