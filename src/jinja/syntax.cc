#include "jinja/syntax.h"

namespace weft::jinja {

Expression::Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression::~Expression() = default;

Statement::Statement() = default;
Statement::Statement(Statement&&) noexcept = default;
Statement& Statement::operator=(Statement&&) noexcept = default;
Statement::~Statement() = default;

}  // namespace weft::jinja
