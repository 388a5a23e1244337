// The parser of the expressions of a Jinja template.
#pragma once

#include "jinja/syntax.h"
#include "jinja/tokens.h"

namespace weft::jinja {

Result<ExpressionPtr> parse_expression(TokenReader& reader);
// One expression, or a tuple of several with commas between them. `with_condition`: a conditional
// expression, "a if b else c", is allowed.
Result<ExpressionPtr> parse_tuple(TokenReader& reader, bool with_condition = true);

// Fails for a name that has a meaning in Jinja that is not supported.
Status check_name(const std::string& name, uint32_t line);

}  // namespace weft::jinja
